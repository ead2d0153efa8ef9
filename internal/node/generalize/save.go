package generalize

import (
	"bytes"
	"crypto/hpke"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/smallstep/pkcs7"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/wire/ber"
)

const (
	// maxOVF bounds ovf-env.xml: customData is at most 64 KiB before base64.
	maxOVF = 1 << 20
	// maxSettings bounds one extension's settings file.
	maxSettings = 1 << 20
	// maxDepth and maxObjects limit a CMS message. Azure's have about 30 objects, more if
	// the content is in chunks.
	maxDepth, maxObjects = 32, 1 << 14
	// noop is the customData of a prototype's clones: it says nothing.
	noop = "#cloud-config\n"
)

// secret is something to save, in the clear; it leaves this package sealed only.
type secret struct {
	kind wire.SealedKind
	name string
	data []byte
}

// savings is what was found to be saved, and what could not be.
type savings struct {
	secrets     []secret
	unsaved     []string
	missing     []wire.UnsavedItem // of unsaved, as data
	noProtected []string           // handlers
}

func (s *savings) fail(format string, args ...any) {
	s.unsaved = append(s.unsaved, printable(fmt.Sprintf(format, args...), 500))
}

// lack is fail of an item that its kind and name say.
func (s *savings) lack(kind wire.SealedKind, name, format string, args ...any) {
	s.missing = append(s.missing, wire.UnsavedItem{Kind: kind, Name: name})
	s.fail(format, args...)
}

// findSavings reads from the disk what cannot be read back from Azure. Only a
// failure to read the disk is an error; what cannot be understood or decrypted
// is named in unsaved.
func findSavings(t *tree.Tree) (savings, error) {
	var s savings
	if err := s.findCustomData(t); err != nil {
		return s, err
	}
	return s, s.findProtectedSettings(t)
}

// findCustomData takes customData from the first place that has it: what the
// platform handed over, what waagent kept of it, what cloud-init kept.
func (s *savings) findCustomData(t *tree.Tree) error {
	var why []string
	for _, file := range []string{"/var/lib/waagent/ovf-env.xml", "/var/lib/waagent/CustomData", "/var/lib/cloud/instance/user-data.txt"} {
		data, err := readOptional(t, file, maxOVF)
		if errors.Is(err, tree.ErrTooLarge) {
			why = append(why, file+" is larger than 1 MiB")
			continue
		}
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		switch path.Base(file) {
		case "ovf-env.xml":
			data, err = customDataOf(data)
		case "CustomData":
			// waagent writes it decoded only where it was told to.
			if plain, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(data)), "")); err == nil {
				data = plain
			}
		}
		if err != nil {
			why = append(why, fmt.Sprintf("%s: %v", file, err))
			continue
		}
		if len(data) == 0 {
			continue
		}
		if !isNoop(data) {
			s.secrets = append(s.secrets, secret{kind: wire.CustomData, data: data})
		}
		return nil
	}
	if len(why) > 0 {
		s.lack(wire.CustomData, "", "customData: %s", strings.Join(why, "; "))
	}
	return nil
}

func isNoop(data []byte) bool {
	return strings.TrimSpace(string(data)) == strings.TrimSpace(noop)
}

// customDataOf finds CustomData in an OVF environment, whatever its namespace,
// and decodes it. Missing or empty is nil without an error. The little of XML
// that this takes is read by hand: a package for all of it is a hundredth of the
// agent.
func customDataOf(ovf []byte) ([]byte, error) {
	open := 0
	for rest := string(ovf); ; {
		at := strings.IndexByte(rest, '<')
		if at < 0 {
			if open != 0 {
				return nil, errors.New("reading XML: it is cut off")
			}
			return nil, nil
		}
		markup, after, err := cutMarkup(rest[at:])
		if err != nil {
			return nil, err
		}
		rest = after
		switch {
		case markup[1] == '!' || markup[1] == '?' || strings.HasSuffix(markup, "/>"):
		case markup[1] == '/':
			open--
		default:
			open++
		}
		name := markup[1:]
		if i := strings.IndexAny(name, " \t\r\n/>"); i >= 0 {
			name = name[:i]
		}
		if name[strings.LastIndexByte(name, ':')+1:] != "CustomData" {
			continue
		}
		if strings.HasSuffix(markup, "/>") {
			return nil, nil
		}
		text, end, ok := strings.Cut(rest, "<")
		if !ok || !strings.HasPrefix(end, "/") {
			return nil, errors.New("reading XML: CustomData does not end")
		}
		data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil {
			return nil, errors.New("CustomData is not base64")
		}
		return data, nil
	}
}

// cutMarkup cuts a tag, comment, instruction or section off the text that begins
// with it.
func cutMarkup(text string) (markup, rest string, err error) {
	for begin, end := range map[string]string{"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>"} {
		if strings.HasPrefix(text, begin) {
			if i := strings.Index(text[len(begin):], end); i >= 0 {
				n := len(begin) + i + len(end)
				return text[:n], text[n:], nil
			}
			return "", "", fmt.Errorf("reading XML: no %s after %s", end, begin)
		}
	}
	var quote byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '>':
			return text[:i+1], text[i+1:], nil
		}
	}
	return "", "", errors.New("reading XML: a tag does not end")
}

// runtimeSettings is the shape of an extension's N.settings.
type runtimeSettings struct {
	RuntimeSettings []struct {
		HandlerSettings struct {
			Thumbprint string `json:"protectedSettingsCertThumbprint"`
			Protected  string `json:"protectedSettings"`
		} `json:"handlerSettings"`
	} `json:"runtimeSettings"`
}

var thumbprint = regexp.MustCompile(`^[0-9A-Fa-f]{40}$`)

// handlerVersion is what follows a handler's name in its folder's name.
var handlerVersion = regexp.MustCompile(`-[0-9][0-9.]*$`)

// findProtectedSettings decrypts, per extension handler, the newest protected
// settings with the certificate that they name.
func (s *savings) findProtectedSettings(t *tree.Tree) error {
	files, err := t.Glob("/var/lib/waagent/*/config/*.settings")
	if err != nil {
		return err
	}
	newest := map[string]string{}
	for _, at := range files {
		name := settingsName(at)
		if have, ok := newest[name]; !ok || sequence(at) > sequence(have) {
			newest[name] = at
		}
	}
	names := make([]string, 0, len(newest))
	for name := range newest {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := readOptional(t, newest[name], maxSettings)
		if errors.Is(err, tree.ErrTooLarge) {
			s.lack(wire.ProtectedSettings, name, "protected settings of %s: larger than 1 MiB", name)
			continue
		}
		if err != nil {
			return err
		}
		plain, err := decryptSettings(t, data)
		switch {
		case err != nil:
			s.lack(wire.ProtectedSettings, name, "protected settings of %s: %v", name, err)
		case plain != nil:
			s.secrets = append(s.secrets, secret{kind: wire.ProtectedSettings, name: name, data: plain})
		default:
			s.noProtected = append(s.noProtected, name)
		}
	}
	return nil
}

// settingsName is the handler's name without version, and for one of several
// instances of it (NAME.SEQUENCE.settings) "handler/name".
func settingsName(at string) string {
	handler := handlerVersion.ReplaceAllString(path.Base(path.Dir(path.Dir(at))), "")
	base := strings.TrimSuffix(path.Base(at), ".settings")
	if i := strings.LastIndexByte(base, '.'); i > 0 {
		return printable(handler+"/"+base[:i], 256)
	}
	return printable(handler, 256)
}

// sequence is the number in N.settings or NAME.N.settings; -1 where there is none.
func sequence(at string) int {
	base := strings.TrimSuffix(path.Base(at), ".settings")
	if i := strings.LastIndexByte(base, '.'); i >= 0 {
		base = base[i+1:]
	}
	n, err := strconv.Atoi(base)
	if err != nil {
		return -1
	}
	return n
}

// decryptSettings returns the protected settings of a settings file as JSON, or
// nil where it has none.
func decryptSettings(t *tree.Tree, data []byte) ([]byte, error) {
	var rs runtimeSettings
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), &rs); err != nil {
		return nil, errors.New("the settings file is not JSON")
	}
	if len(rs.RuntimeSettings) == 0 || rs.RuntimeSettings[0].HandlerSettings.Protected == "" {
		return nil, nil
	}
	h := rs.RuntimeSettings[0].HandlerSettings
	if !thumbprint.MatchString(h.Thumbprint) {
		return nil, errors.New("they do not name a certificate")
	}
	thumb := strings.ToUpper(h.Thumbprint)
	certPEM, err := readOptional(t, "/var/lib/waagent/"+thumb+".crt", maxConfig)
	if err != nil {
		return nil, err
	}
	keyPEM, err := readOptional(t, "/var/lib/waagent/"+thumb+".prv", maxConfig)
	if err != nil {
		return nil, err
	}
	certs := certificatesIn(certPEM)
	key, keyErr := rsaKeyIn(keyPEM)
	if len(certs) == 0 || keyErr != nil {
		return nil, fmt.Errorf("certificate %s or its key is not on the disk", thumb)
	}
	cms, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(h.Protected), ""))
	if err != nil {
		return nil, errors.New("they are not base64")
	}
	return openCMS(cms, certs[0], key)
}

// openCMS decrypts an enveloped message of a disk that is not trusted: what a
// parser makes of it must not end the process.
func openCMS(cms []byte, cert *x509.Certificate, key *rsa.PrivateKey) (plain []byte, err error) {
	defer func() {
		if recover() != nil {
			plain, err = nil, errors.New("the encrypted message is malformed")
		}
	}()
	if ber.Check(cms, ber.Limits{Depth: maxDepth, Objects: maxObjects}) != nil {
		return nil, errors.New("they are no CMS message")
	}
	p7, err := pkcs7.Parse(cms)
	if err != nil {
		return nil, errors.New("they are no CMS message")
	}
	plain, err = p7.Decrypt(cert, key)
	if err != nil {
		return nil, errors.New("the node's certificate does not decrypt them")
	}
	if plain = bytes.TrimSpace(plain); !json.Valid(plain) {
		return nil, errors.New("what they decrypt to is not JSON")
	}
	return plain, nil
}

func rsaKeyIn(data []byte) (*rsa.PrivateKey, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("no RSA key")
		}
		key, err := parseKey(block)
		if rk, ok := key.(*rsa.PrivateKey); err == nil && ok {
			return rk, nil
		}
	}
}

// seal turns what was found into what may be reported. Without a key to seal
// to, everything is unsaved.
func (s *savings) seal(o Options) ([]wire.SealedItem, error) {
	var items []wire.SealedItem
	for _, x := range s.secrets {
		if o.SealTo == nil {
			s.missing = append(s.missing, wire.UnsavedItem{Kind: x.kind, Name: x.name, Readable: true})
			s.fail("%s: %s", strings.TrimSpace(string(x.kind)+" "+x.name), wire.NoSealKey)
			continue
		}
		pub, err := hpke.NewDHKEMPublicKey(o.SealTo)
		if err != nil {
			return nil, fmt.Errorf("taking the key to seal to: %w", err)
		}
		info := "ortet.io/saved/" + string(x.kind) + "/" + x.name
		sealed, err := hpke.Seal(pub, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte(info), x.data)
		if err != nil {
			return nil, fmt.Errorf("sealing %s %s: %w", x.kind, x.name, err)
		}
		sum := sha256.Sum256(x.data)
		items = append(items, wire.SealedItem{Kind: x.kind, Name: x.name, SHA256: hex.EncodeToString(sum[:]), Sealed: sealed})
	}
	return items, nil
}

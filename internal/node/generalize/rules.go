package generalize

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// Names of the rules. They are stable: reports and documentation use them.
const (
	ruleKubeletKey   = "kubelet-client-key"
	ruleKubeletFile  = "kubelet-pki-file"
	ruleNodeKubecfg  = "node-kubeconfig"
	ruleSSHHostKey   = "ssh-host-key"
	ruleNodePassword = "k3s-node-password" //nolint:gosec // a rule's name
	ruleRandomSeed   = "random-seed"
	ruleMachineID    = "donor-machine-id"
	ruleName         = "donor-name"
	ruleAddress      = "donor-address"
	ruleSAToken      = "service-account-token"
	ruleUnreadable   = "unreadable"
	ruleUnscanned    = "not-scanned"
	ruleAzureJSON    = "azure-client-secret"
	ruleKubecfgKey   = "kubeconfig-key"
	ruleKubecfgToken = "kubeconfig-token" //nolint:gosec // a rule's name
	ruleBootstrap    = "bootstrap-token"
	ruleK3sToken     = "k3s-token"
	rulePrivateKey   = "private-key"
)

// Rule is one rule of the scan, for people.
type Rule struct {
	Name  string
	Class wire.SecretClass
	Finds string
}

// Rules lists the scan's rules.
func Rules() []Rule {
	const node, pool = wire.NodeIdentity, wire.PoolCredential
	return []Rule{
		{ruleKubeletKey, node, "a private key, anywhere and in any wrapping, that belongs to a certificate of a system:node: name"},
		{ruleKubeletFile, node, "anything left in the kubelet's pki folder"},
		{ruleNodeKubecfg, node, "a kubeconfig of a node's identity, or one that cannot be read and holds a key"},
		{ruleSSHHostKey, node, "an SSH host key, also a copy elsewhere"},
		{ruleNodePassword, node, "k3s' or RKE2's node password, also a copy elsewhere"},
		{ruleRandomSeed, node, "systemd's random seed or credential secret"},
		{ruleMachineID, node, "the donor's machine-id in configuration or state"},
		{ruleName, node, "the donor's node or host name in configuration or state"},
		{ruleAddress, node, "the donor's address in configuration or state"},
		{ruleSAToken, node, "a Kubernetes service account's token: it was a pod's on the donor"},
		{ruleUnreadable, node, "a file or folder that cannot be read"},
		{ruleUnscanned, node, "a file that lies beyond the scan's bounds"},
		{ruleAzureJSON, pool, "a service principal's secret in a cloud provider's configuration (azure.json)"},
		{ruleKubecfgKey, pool, "a kubeconfig with an embedded key that is no node's"},
		{ruleKubecfgToken, pool, "a kubeconfig with a token or password: a bootstrap kubeconfig"},
		{ruleBootstrap, pool, "a bootstrap token in another file"},
		{ruleK3sToken, pool, "k3s' or RKE2's token"},
		{rulePrivateKey, pool, "any other private key (AKS Engine's shared client key, a local web server's): every clone would hold it"},
	}
}

// state lists where the donor's names may not be left: what a clone reads at
// its start. Elsewhere a mention is only told.
func state() []string {
	return []string{
		"etc/", "var/lib/kubelet/", "var/lib/cloud/", "var/lib/waagent/", "var/lib/rancher/",
		"var/lib/cni/", "var/lib/calico/", "var/lib/dhcp/", "var/lib/dhclient/", "var/lib/NetworkManager/", "var/spool/cron/",
	}
}

func inState(at string) bool {
	for _, p := range state() {
		if strings.HasPrefix(at, p) {
			return true
		}
	}
	return false
}

// isVendor says whether only the distribution's packages write to a path:
// private keys there are tests and examples that the whole world has.
func isVendor(at string) bool {
	for _, p := range []string{"usr/share/", "usr/lib/", "usr/lib64/", "usr/src/", "usr/include/", "usr/bin/", "usr/sbin/", "usr/libexec/", "lib/", "var/lib/dpkg/", "var/lib/rpm/"} {
		if strings.HasPrefix(at, p) {
			return true
		}
	}
	return false
}

var sshHostKeyName = regexp.MustCompile(`^etc/ssh/ssh_host_[^/]*$`)

// byPath are the rules that need no content: the table has emptied these
// places, so whatever is there came back or could not be removed.
func (s *scanner) byPath(at string, e fs.DirEntry) {
	if e.IsDir() {
		return
	}
	switch {
	case sshHostKeyName.MatchString(at):
		s.find(at, ruleSSHHostKey, wire.NodeIdentity, "")
	case strings.HasPrefix(at, "var/lib/kubelet/pki/"):
		s.find(at, ruleKubeletFile, wire.NodeIdentity, "")
	case strings.HasPrefix(at, "etc/rancher/node/"):
		s.find(at, ruleNodePassword, wire.NodeIdentity, "")
	case at == "var/lib/systemd/random-seed", at == "var/lib/systemd/credential.secret":
		s.find(at, ruleRandomSeed, wire.NodeIdentity, "")
	}
}

// piece is a part of a file that is looked at together.
type piece struct {
	path    string
	data    []byte
	whole   bool // the whole file
	vendor  bool
	program bool // an ELF file
}

var (
	pemBegin  = []byte("-----BEGIN ")
	pemBase64 = []byte("LS0tLS1CRUdJTi") // base64 of "-----BEGIN"

	azureSecret    = regexp.MustCompile(`["']?aadClient(?:Secret|CertPassword)["']?\s*[:=]\s*["']?([^"'\s,}]+)`)
	bootstrapToken = regexp.MustCompile(`(?i)token["']?\s*[:=]?\s*["']?([a-z0-9]{6}\.[a-z0-9]{16})(?:[^a-z0-9]|$)`)
	k3sFullToken   = regexp.MustCompile(`\bK10[0-9a-f]{64}::[^\s"']+`)
	jwtToken       = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.(eyJ[A-Za-z0-9_-]{10,})\.[A-Za-z0-9_-]{20,}`)
)

// content are the rules on what a file holds.
func (s *scanner) content(p piece) {
	s.pemBlocks(p)
	s.base64Blocks(p)
	s.donorTraces(p)
	for _, pw := range s.donor.passwords {
		if i := bytes.Index(p.data, pw); i >= 0 {
			s.find(p.path, ruleNodePassword, wire.NodeIdentity, where(p, i))
		}
	}
	if p.vendor || p.program {
		return // programs hold the words, not the secrets
	}
	if loc := find(azureSecret, p.data, "aadClient"); loc != nil && !bytes.EqualFold(p.data[loc[2]:loc[3]], []byte("msi")) {
		s.find(p.path, ruleAzureJSON, wire.PoolCredential, where(p, loc[0]))
	}
	if loc := find(k3sFullToken, p.data, "::"); loc != nil {
		s.find(p.path, ruleK3sToken, wire.PoolCredential, where(p, loc[0]))
	}
	if loc := find(jwtToken, p.data, "eyJ"); loc != nil && isServiceAccount(p.data[loc[2]:loc[3]]) {
		s.find(p.path, ruleSAToken, wire.NodeIdentity, where(p, loc[0]))
	}
	if !p.whole {
		return
	}
	if inState(p.path) || strings.HasPrefix(p.path, "root/") || strings.HasPrefix(p.path, "home/") || strings.HasPrefix(p.path, "opt/") {
		s.tokens(p)
	}
	s.kubeconfig(p)
}

// tokens are rules on small configuration files, whose words would be met by
// chance elsewhere.
func (s *scanner) tokens(p piece) {
	rancher := strings.HasPrefix(p.path, "etc/rancher/") && (strings.HasSuffix(p.path, ".yaml") || strings.HasSuffix(p.path, ".yml"))
	if loc := k3sTokenVar.FindIndex(p.data); loc != nil {
		s.find(p.path, ruleK3sToken, wire.PoolCredential, where(p, loc[0]))
	} else if loc := k3sTokenKey.FindIndex(p.data); loc != nil && rancher {
		s.find(p.path, ruleK3sToken, wire.PoolCredential, where(p, loc[0]))
	}
	if loc := bootstrapToken.FindSubmatchIndex(p.data); loc != nil {
		s.find(p.path, ruleBootstrap, wire.PoolCredential, where(p, loc[0]))
	}
}

func (s *scanner) kubeconfig(p piece) {
	if !bytes.Contains(p.data, []byte("clusters")) || !bytes.Contains(p.data, []byte("users")) {
		return
	}
	kc, err := parseKubeconfig(p.data)
	if err != nil {
		if inState(p.path) && bytes.Contains(p.data, []byte("client-key")) {
			s.find(p.path, ruleNodeKubecfg, wire.NodeIdentity, "looks like a kubeconfig and cannot be read as one")
		}
		return
	}
	for _, u := range kc.Users {
		node := strings.HasPrefix(u.Name, nodeUserPrefix) || strings.HasPrefix(u.User.Certificate, "/var/lib/kubelet/pki/")
		for _, c := range certificatesIn(u.certificate()) {
			node = node || strings.HasPrefix(c.Subject.CommonName, nodeUserPrefix)
		}
		switch {
		case node:
			s.find(p.path, ruleNodeKubecfg, wire.NodeIdentity, "")
		case u.User.Token != "" || u.User.Password != "":
			s.find(p.path, ruleKubecfgToken, wire.PoolCredential, "")
		case u.User.KeyData != "":
			s.find(p.path, ruleKubecfgKey, wire.PoolCredential, "")
		}
	}
}

// pemBlocks looks at every PEM block that begins in the piece.
func (s *scanner) pemBlocks(p piece) {
	for rest := p.data; ; {
		i := bytes.Index(rest, pemBegin)
		if i < 0 {
			return
		}
		rest = rest[i:]
		at := len(p.data) - len(rest)
		// Up to the next beginning only: pieces are looked at once, whatever a
		// file is full of.
		own := rest[:min(len(rest), overlap)]
		if next := bytes.Index(own[len(pemBegin):], pemBegin); next >= 0 {
			own = own[:len(pemBegin)+next]
		}
		if block, _ := pem.Decode(own); block != nil {
			s.pemBlock(p, block, at)
		}
		rest = rest[len(pemBegin):]
	}
}

// base64Blocks looks at PEM that is wrapped in base64 once more, as kubeconfigs,
// Secrets and cloud-init's write_files do.
func (s *scanner) base64Blocks(p piece) {
	for rest := p.data; ; {
		i := bytes.Index(rest, pemBase64)
		if i < 0 {
			return
		}
		rest = rest[i:]
		at := len(p.data) - len(rest)
		n := 0
		for n < min(len(rest), overlap) && isBase64(rest[n]) {
			n++
		}
		inner := make([]byte, base64.RawStdEncoding.DecodedLen(n))
		m, _ := base64.RawStdEncoding.Decode(inner, rest[:n]) // a cut-off end is no matter
		for more := inner[:m]; ; {
			var block *pem.Block
			if block, more = pem.Decode(more); block == nil {
				break
			}
			s.pemBlock(p, block, at)
		}
		rest = rest[max(n, 1):]
	}
}

func isBase64(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}

func (s *scanner) pemBlock(p piece, block *pem.Block, at int) {
	if block.Type == "CERTIFICATE" {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err == nil && strings.HasPrefix(cert.Subject.CommonName, nodeUserPrefix) && len(s.nodeKeys) < maxKeys {
			s.nodeKeys[sha256.Sum256(cert.RawSubjectPublicKeyInfo)] = "/" + p.path
		}
		return
	}
	if !strings.HasSuffix(block.Type, "PRIVATE KEY") || len(block.Bytes) < 32 {
		return
	}
	for _, pub := range s.donor.sshPublics {
		if bytes.Contains(block.Bytes, pub) {
			s.find(p.path, ruleSSHHostKey, wire.NodeIdentity, where(p, at))
			return
		}
	}
	vendor := p.vendor || p.program
	if key, err := parseKey(block); err == nil {
		if spki, err := publicOf(key); err == nil {
			s.key(p.path, spki, vendor)
			return
		}
	}
	if !vendor {
		s.find(p.path, rulePrivateKey, wire.PoolCredential, where(p, at))
	}
}

// donorTraces looks for the donor's machine-id, names and addresses.
func (s *scanner) donorTraces(p piece) {
	if p.path == ancestryFile {
		return // it is there to name them
	}
	look := func(rule, needle string) {
		if needle == "" {
			return
		}
		i := wordIndex(p.data, needle)
		if i < 0 {
			return
		}
		if inState(p.path) && !p.program {
			s.find(p.path, rule, wire.NodeIdentity, where(p, i))
		} else if len(s.mentions) < maxMentions {
			s.mentions[printable("/"+p.path, 1024)] = true
		}
	}
	look(ruleMachineID, s.donor.machineID)
	for _, n := range s.donor.names {
		look(ruleName, n)
	}
	for _, a := range s.donor.addresses {
		look(ruleAddress, a.String())
	}
}

// wordIndex finds needle where no letter, digit, '-' or '_' touches it.
func wordIndex(data []byte, needle string) int {
	for off := 0; ; {
		i := bytes.Index(data[off:], []byte(needle))
		if i < 0 {
			return -1
		}
		i += off
		end := i + len(needle)
		if (i == 0 || !isWord(data[i-1])) && (end == len(data) || !isWord(data[end])) {
			return i
		}
		off = i + 1
	}
}

func isWord(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// find runs a regular expression only where a word that it needs is there.
func find(re *regexp.Regexp, data []byte, needs string) []int {
	if !bytes.Contains(data, []byte(needs)) {
		return nil
	}
	return re.FindSubmatchIndex(data)
}

// isServiceAccount says whether a JWT's payload names a Kubernetes service account.
func isServiceAccount(payload []byte) bool {
	plain, err := base64.RawURLEncoding.DecodeString(string(payload))
	return err == nil && bytes.Contains(plain, []byte("system:serviceaccount:"))
}

// where says the line for a text that is whole in view, else nothing.
func where(p piece, at int) string {
	if !p.whole || bytes.IndexByte(p.data, 0) >= 0 {
		return ""
	}
	return fmt.Sprintf("line %d", 1+bytes.Count(p.data[:at], []byte("\n")))
}

// parseKey reads an unencrypted private key in PKCS#8, PKCS#1 or SEC 1.
func parseKey(block *pem.Block) (crypto.PrivateKey, error) {
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	return nil, errors.New("no private key of a known kind")
}

// publicOf is a private key's public half as a SubjectPublicKeyInfo.
func publicOf(key crypto.PrivateKey) ([]byte, error) {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return x509.MarshalPKIXPublicKey(&k.PublicKey)
	case *ecdsa.PrivateKey:
		return x509.MarshalPKIXPublicKey(&k.PublicKey)
	case ed25519.PrivateKey:
		return x509.MarshalPKIXPublicKey(k.Public())
	default:
		return nil, fmt.Errorf("a key of type %T", key)
	}
}

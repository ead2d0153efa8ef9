package generalize

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/wire"
)

// Names of the rules. They are stable: reports and documentation use them.
const (
	ruleKubeletKey    = "kubelet-client-key"
	ruleServingKey    = "kubelet-serving-key"
	ruleKubeletFile   = "kubelet-pki-file"
	ruleNodeKubecfg   = "node-kubeconfig"
	ruleSSHHostKey    = "ssh-host-key"
	ruleNodePassword  = "k3s-node-password" //nolint:gosec // a rule's name
	ruleAgentKey      = "azure-agent-key"
	ruleAgentIdentity = "agent-identity"
	ruleLUKSKey       = "luks-key-file"
	ruleSwapFile      = "swap-file"
	ruleRandomSeed    = "random-seed"
	ruleMachineID     = "donor-machine-id"
	ruleName          = "donor-name"
	ruleAddress       = "donor-address"
	ruleSAToken       = "service-account-token"
	ruleUnreadable    = "unreadable"
	ruleUnscanned     = "not-scanned"
	ruleKubecfgKey    = "kubeconfig-key"
	ruleKubecfgToken  = "kubeconfig-token" //nolint:gosec // a rule's name
)

// Rules of internal/redact: the first two find what the scan finds too, the others say
// less of a key than its own rules do.
const (
	ruleAzureJSON  = "azure-client-secret"
	ruleK3sToken   = "k3s-token"
	rulePrivateKey = "private-key"
	ruleSSHKey     = "ssh-private-key"
)

// Rules lists the rules of the scan; those by form of internal/redact follow.
func Rules() []redact.Rule {
	const node, pool = wire.NodeIdentity, wire.PoolCredential
	return []redact.Rule{
		{Name: ruleKubeletKey, Class: node, Finds: "the key of the kubelet's client certificate, by value; or a private key in PEM that belongs to a certificate of a system:node: name"},
		{Name: ruleServingKey, Class: node, Finds: "the key of the kubelet's serving certificate, or another key of the k3s or RKE2 agent's, by value"},
		{Name: ruleKubeletFile, Class: node, Finds: "anything left in the kubelet's pki folder"},
		{Name: ruleNodeKubecfg, Class: node, Finds: "a kubeconfig of a node's identity, or one that cannot be read and holds a key"},
		{Name: ruleSSHHostKey, Class: node, Finds: "an SSH host key, by value; anything left at its place"},
		{Name: ruleNodePassword, Class: node, Finds: "k3s' or RKE2's node password, by value; anything left at its place"},
		{Name: ruleAgentKey, Class: node, Finds: "the key of the Azure agent's transport certificate, by value"},
		{Name: ruleAgentIdentity, Class: node, Finds: "a key of another agent of this host, by value or by its file (see above), and Nebula's keys; the finding says what to do"},
		{Name: ruleLUKSKey, Class: node, Finds: "a key file by which /etc/crypttab opens a volume: every clone could open the donor's"},
		{Name: ruleRandomSeed, Class: node, Finds: "systemd's credential secret, by value; that or the random seed left at its place"},
		{Name: ruleMachineID, Class: node, Finds: "the donor's machine-id in configuration or state, also as a UUID or in capitals"},
		{Name: ruleName, Class: node, Finds: "the donor's node or host name in configuration or state"},
		{Name: ruleAddress, Class: node, Finds: "the donor's address in configuration or state"},
		{Name: ruleSAToken, Class: node, Finds: "a token that a pod of the donor had, by value; any Kubernetes service account's token"},
		{Name: ruleUnreadable, Class: node, Finds: "a file or folder that cannot be read"},
		{Name: ruleUnscanned, Class: node, Finds: "a file that lies beyond the scan's bounds"},
		{Name: ruleKubecfgKey, Class: pool, Finds: "a kubeconfig with an embedded key that is no node's"},
		{Name: ruleKubecfgToken, Class: pool, Finds: "a kubeconfig with a token or password: a bootstrap kubeconfig"},
		{Name: ruleSwapFile, Class: wire.OtherSecret, Finds: "a swap file that neither /etc/fstab nor a .swap unit names, with memory of the donor's processes"},
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

// vendor lists where only the distribution's packages write: private keys there are
// tests and examples that the whole world has.
func vendor() []string {
	return []string{"usr/share/", "usr/lib/", "usr/lib64/", "usr/src/", "usr/include/", "usr/bin/", "usr/sbin/", "usr/libexec/", "lib/", "var/lib/dpkg/", "var/lib/rpm/"}
}

// units are where people write units although packages do, too.
func units() []string { return []string{"usr/lib/systemd/system/", "lib/systemd/system/"} }

func isVendor(at string) bool {
	for _, p := range units() {
		if strings.HasPrefix(at, p) {
			return false
		}
	}
	for _, p := range vendor() {
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
	case s.donor.luksKeys[at]:
		s.find(at, ruleLUKSKey, wire.NodeIdentity, "remove it and its line of /etc/crypttab on the donor; each node makes its own")
	}
}

var (
	pemBegin  = []byte("-----BEGIN ")
	pemBase64 = []byte("LS0tLS1CRUdJTi") // base64 of "-----BEGIN"

	azureSecret = regexp.MustCompile(`["']?aadClient(?:Secret|CertPassword)["']?\s*[:=]\s*["']?([^"'\s,}]+)`)
	jwtToken    = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.(eyJ[A-Za-z0-9_-]{10,})\.[A-Za-z0-9_-]{20,}`)
)

// content are the rules on the form of what a file holds.
func (s *scanner) content(p piece) {
	s.pemBlocks(p)
	s.base64Blocks(p)
	s.donorTraces(p)
	s.agentIdentity(p)
	if p.Vendor || p.Program {
		return // programs hold the words, not the secrets
	}
	s.configuration(p)
	judged := s.kubeconfig(p)
	byForm := redact.Find(p.Piece)
	for _, hit := range s.known.FindKeys(p.Piece, byForm) {
		s.find(p.at, hit.Rule, hit.Class, where(p, hit.From))
	}
	for _, hit := range byForm {
		value := string(p.Data[hit.From:hit.To])
		if !slices.ContainsFunc(judged, func(v string) bool { return strings.Contains(v, value) }) {
			s.find(p.at, hit.Rule, hit.Class, where(p, hit.From))
		}
	}
	if bytes.Contains(p.Data, []byte("eyJ")) {
		for _, loc := range jwtToken.FindAllSubmatchIndex(p.Data, maxTokens) {
			if isServiceAccount(p.Data[loc[2]:loc[3]]) {
				s.find(p.at, ruleSAToken, wire.NodeIdentity, where(p, loc[0]))
			}
		}
	}
}

// configuration are rules on fields whose every value is a credential, also one that
// looks like none.
func (s *scanner) configuration(p piece) {
	if bytes.Contains(p.Data, []byte("aadClient")) {
		if loc := azureSecret.FindSubmatchIndex(p.Data); loc != nil && !bytes.EqualFold(p.Data[loc[2]:loc[3]], []byte("msi")) {
			s.find(p.at, ruleAzureJSON, wire.PoolCredential, where(p, loc[0]))
		}
	}
	if !p.Whole || !inState(p.Path) {
		return
	}
	loc := tokenHere(k3sTokenVar, p.Data)
	if loc == nil && strings.HasPrefix(p.Path, "etc/rancher/") && (strings.HasSuffix(p.Path, ".yaml") || strings.HasSuffix(p.Path, ".yml")) {
		loc = tokenHere(k3sTokenKey, p.Data)
	}
	if loc != nil {
		s.find(p.at, ruleK3sToken, wire.PoolCredential, where(p, loc[0]))
	}
}

// tokenHere is where a token stands, rather than the path of its file.
func tokenHere(form *regexp.Regexp, data []byte) []int {
	for _, loc := range form.FindAllIndex(data, -1) {
		if field := bytes.ToLower(data[loc[0]:loc[1]]); !bytes.Contains(field, []byte("token-file")) && !bytes.Contains(field, []byte("token_file")) {
			return loc
		}
	}
	return nil
}

// kubeconfig judges the credentials of a kubeconfig, and returns them.
func (s *scanner) kubeconfig(p piece) (judged []string) {
	if !p.Whole || !bytes.Contains(p.Data, []byte("clusters")) || !bytes.Contains(p.Data, []byte("users")) {
		return nil
	}
	kc, err := parseKubeconfig(p.Data)
	if err != nil {
		if inState(p.Path) && bytes.Contains(p.Data, []byte("client-key")) {
			s.find(p.at, ruleNodeKubecfg, wire.NodeIdentity, "looks like a kubeconfig and cannot be read as one")
		}
		return nil
	}
	for _, u := range kc.Users {
		judged = append(judged, u.User.Token, u.User.Password, u.User.KeyData)
		node := strings.HasPrefix(u.Name, nodeUserPrefix) || strings.HasPrefix(u.User.Certificate, "/var/lib/kubelet/pki/")
		for _, c := range certificatesIn(u.certificate()) {
			node = node || strings.HasPrefix(c.Subject.CommonName, nodeUserPrefix)
		}
		switch {
		case node:
			s.find(p.at, ruleNodeKubecfg, wire.NodeIdentity, "")
		case u.User.Token != "" || u.User.Password != "":
			s.find(p.at, ruleKubecfgToken, wire.PoolCredential, "")
		case u.User.KeyData != "":
			s.find(p.at, ruleKubecfgKey, wire.PoolCredential, "")
		}
	}
	return judged
}

// pemBlocks looks at every PEM block that begins in the piece.
func (s *scanner) pemBlocks(p piece) {
	for rest := p.Data; ; {
		i := bytes.Index(rest, pemBegin)
		if i < 0 {
			return
		}
		rest = rest[i:]
		at := len(p.Data) - len(rest)
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
	for rest := p.Data; ; {
		i := bytes.Index(rest, pemBase64)
		if i < 0 {
			return
		}
		rest = rest[i:]
		at := len(p.Data) - len(rest)
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
		if err == nil && strings.HasPrefix(cert.Subject.CommonName, nodeUserPrefix) {
			s.nodeKey(p.at, cert.RawSubjectPublicKeyInfo)
		}
		return
	}
	if !strings.HasSuffix(block.Type, "PRIVATE KEY") || len(block.Bytes) < 32 {
		return
	}
	if strings.HasPrefix(block.Type, nebulaKey) {
		s.find(p.at, ruleAgentIdentity, wire.NodeIdentity, "Nebula's key of this host: remove it on the donor; a clone needs one of its own")
		return
	}
	for _, pub := range s.donor.sshPublics {
		if bytes.Contains(block.Bytes, pub) {
			s.find(p.at, ruleSSHHostKey, wire.NodeIdentity, where(p, at))
			return
		}
	}
	if key, err := parseKey(block); err == nil {
		if spki, err := publicOf(key); err == nil {
			s.key(p.at, spki)
		}
	}
}

// donorTraces looks for the donor's machine-id, names and addresses.
func (s *scanner) donorTraces(p piece) {
	if p.Path == ancestryFile || p.layer {
		return // it is there to name them; a layer is the same on every node
	}
	p.Data = s.blank(p)
	look := func(rule, needle string) {
		if needle == "" {
			return
		}
		i := wordIndex(p.Data, needle)
		if i < 0 {
			return
		}
		if inState(p.Path) && !p.Program {
			s.find(p.at, rule, wire.NodeIdentity, where(p, i))
		} else {
			s.mention(p.at)
		}
	}
	look(ruleMachineID, s.donor.machineID)
	if inState(p.Path) {
		for _, form := range machineForms(s.donor.machineID) {
			look(ruleMachineID, form)
		}
	}
	for _, n := range s.donor.names {
		look(ruleName, n)
	}
	for _, a := range s.donor.addresses {
		look(ruleAddress, a.String())
	}
}

// machineForms are the ways in which programs write a machine-id but for its own: as a
// UUID, and in capitals.
func machineForms(id string) []string {
	const digits = 32
	if len(id) != digits {
		return nil
	}
	dashed := id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
	return []string{dashed, strings.ToUpper(dashed), strings.ToUpper(id)}
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

// isServiceAccount says whether a JWT's payload names a Kubernetes service account.
func isServiceAccount(payload []byte) bool {
	plain, err := base64.RawURLEncoding.DecodeString(string(payload))
	return err == nil && bytes.Contains(plain, []byte("system:serviceaccount:"))
}

// where says the line for a text that is whole in view, else nothing.
func where(p piece, at int) string {
	if !p.Whole || bytes.IndexByte(p.Data, 0) >= 0 {
		return ""
	}
	return fmt.Sprintf("line %d", 1+bytes.Count(p.Data[:at], []byte("\n")))
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

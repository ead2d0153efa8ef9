package play

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/prototype"
)

// Kinds of nodes, as in the setting kind of donor.
const (
	noFiles   = "none"
	byKubeadm = "kubeadm"
	byK3s     = "k3s"
	byAKS     = "aks"
)

const (
	bootstrapKubelet = "etc/kubernetes/bootstrap-kubelet.conf"
	kubeletPKI       = "var/lib/kubelet/pki/"
	joinUnit         = "etc/systemd/system/ortet-join.service"
	nodeAddress      = "10.0.0.4" // of all nodes, as report has it
	settingsFolder   = "var/lib/waagent/Microsoft.Azure.Extensions.CustomScript-2.1.10/"
)

// A maker writes files and notes what of them is whose.
type maker struct {
	*content
	r    *rand.Rand
	kind string
	disk string // the setting
	host string
	now  time.Time
	err  error // the first
}

func (m *maker) check(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *maker) write(at, data string) { m.files[at] = entry{data: data, mode: 0o644} }

func (m *maker) plant(class class, at, value, what string) {
	m.plants = append(m.plants, plant{class: class, path: at, value: value, what: what})
}

// keep writes a file that an image has as it is.
func (m *maker) keep(at, data string) {
	m.write(at, data)
	m.plant(stays, at, data, "a file that is nobody's")
}

// own writes a file of this node alone, which no image has.
func (m *maker) own(at, data string) {
	m.write(at, data)
	m.plant(gone, at, "", "a file of "+m.host)
}

func (m *maker) of(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[m.r.IntN(len(alphabet))]
	}
	return string(b)
}

// Without o, u and x, of which no placeholder such as "your" or "xxxx" comes by chance.
const (
	hexDigits = "0123456789abcdef"
	plain     = "abcdefghijklmnpqrstvwyzABCDEFGHIJKLMNPQRSTVWYZ"
	letters   = "abcdefghijklmnpqrstvwyz0123456789"
	mixed     = plain + "0123456789"
)

func (m *maker) hex(n int) string { return m.of(hexDigits, n) }

func (m *maker) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(m.r.UintN(256))
	}
	return b
}

// A key is a private key in PEM, and what it is known by.
type key struct {
	text    string
	needles []string
	public  crypto.PublicKey
}

func (m *maker) armored(private crypto.PrivateKey, raw []byte, public crypto.PublicKey) key {
	der, err := x509.MarshalPKCS8PrivateKey(private)
	m.check(err)
	text := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	return key{text: text, public: public, needles: []string{strings.Split(text, "\n")[1], string(raw), hex.EncodeToString(raw)}}
}

func (m *maker) ec() key {
	raw := m.bytes(32)
	raw[0] &= 0x7f // less than the curve's order
	k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	if err != nil {
		m.check(err)
		return m.ed()
	}
	return m.armored(k, raw, &k.PublicKey)
}

func (m *maker) ed() key {
	seed := m.bytes(ed25519.SeedSize)
	k := ed25519.NewKeyFromSeed(seed)
	return m.armored(k, seed, k.Public())
}

// certificate is of a public key, by the cluster's authority.
func (m *maker) certificate(name string, public crypto.PublicKey) string {
	authority := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name}, NotBefore: m.now, NotAfter: m.now.AddDate(1, 0, 0)}
	parent := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, PublicKey: authority.Public()}
	der, err := x509.CreateCertificate(nil, template, parent, public, authority)
	m.check(err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// blob is a public key as SSH has it.
func (m *maker) blob(k key) []byte {
	public, _ := k.public.(ed25519.PublicKey) // what ed makes
	return append([]byte("\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20"), public...)
}

// secret notes a key of this node alone by all that it is known by.
func (m *maker) secret(at string, k key, what string) {
	for _, n := range k.needles {
		m.plant(identity, at, n, what)
	}
}

func (m *maker) token() string { return m.of(letters, 6) + "." + m.of(letters, 16) }

// podToken is a service account's, of a pod of this node.
func (m *maker) podToken() (token, signature string) {
	enc := base64.RawURLEncoding.EncodeToString
	signature = enc(m.bytes(64))
	claims := `{"iss":"https://kubernetes.default.svc","kubernetes.io":{"node":{"name":"` + m.host + `"}},"sub":"system:serviceaccount:kube-system:kube-proxy"}`
	return enc([]byte(`{"alg":"RS256","kid":"k"}`)) + "." + enc([]byte(claims)) + "." + signature, signature
}

func kubeconfig(user, auth string) string {
	return "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {server: \"https://10.0.0.1:6443\"}\nusers:\n- name: " + user + "\n  user:\n    " + auth + "\ncontexts: []\n"
}

// firstBoot is what the first boot of a disk makes: on a disk from the Marketplace the
// node that its setting says, on a clone what it lacks. As cloud-init, sshd, systemd
// and the kubelet, it leaves what is there.
func (w *world) firstBoot(from *content, b birth) (*content, error) {
	host := strings.ToLower(b.host)
	m := &maker{
		content: &content{files: map[string]entry{}}, host: host, now: w.begin, kind: w.story.Donor.Kind, disk: w.story.Donor.Disk,
		r: rand.New(rand.NewPCG(w.hash("what is on the disk of", host), w.hash("and more of", host))),
	}
	fresh := from == nil
	if fresh {
		m.platform()
	} else {
		*m.content = *from
		m.files = maps.Clone(from.files)
		m.plants = append([]plant(nil), from.plants...)
	}
	m.unserved = b.customData == prototype.NoopCustomData
	m.system()
	m.azure(b.customData)
	if fresh || b.customData != prototype.NoopCustomData {
		// Its pool has the same credentials, whichever node is made first.
		own := m.r
		m.r = rand.New(rand.NewPCG(w.hash("credentials of the pool"), 1))
		m.joins()
		m.r = own
	}
	m.kubelet()
	if fresh {
		m.users(w.story.Donor.Others, w.story.Donor.Strays)
	}
	return m.content, m.err
}

// platform is what the distribution brings, and who made the pool's model.
func (m *maker) platform() {
	m.keep("etc/os-release", "NAME=Debian\nPRETTY_NAME=\"Debian\"\n")
	m.keep("etc/passwd", "root:x:0:0::/root:/bin/bash\nazureuser:x:1000:1000::/home/azureuser:/bin/bash\n")
	m.keep("etc/fstab", "UUID=1 / ext4 defaults 0 1\n/swapfile none swap sw 0 0\n")
	m.keep("etc/ssh/sshd_config", "PasswordAuthentication no\nHostKey /etc/ssh/ssh_host_ed25519_key\n")
	m.keep("etc/containerd/config.toml", "version = 3\n")
	m.keep("etc/sysctl.d/k8s.conf", "net.ipv4.ip_forward = 1\n")
	m.keep("var/lib/dpkg/status", "Package: openssl\n")
	m.keep("var/lib/dpkg/info/app.list", "/.\n/opt\n/opt/app\n/opt/app/shipped.conf\n")
	m.keep("usr/bin/kubelet", "\x7fELF\x02\x01 token password -----BEGIN PRIVATE KEY----- machine-id")
	m.keep("opt/cni/bin/bridge", "\x7fELF\x02\x01")
	if m.preserve = m.disk == "preserve"; m.preserve {
		m.keep("etc/cloud/cloud.cfg", "users: [default]\npreserve_hostname: true\n")
	} else {
		m.keep("etc/cloud/cloud.cfg", "users: [default]\npreserve_hostname: false\n")
	}
	// What looks like a secret and is none.
	m.keep("usr/share/doc/openssl/test.key", m.ed().text)
	m.keep("usr/share/doc/kubeadm/README", "kubeadm join --token abcdef.0123456789abcdef 10.0.0.1:6443\n")
	m.keep("opt/app/.env.example", "DB_PASSWORD=changeme\nAPI_TOKEN=your-token-here\nSECRET_KEY=<secret>\n")
	m.keep("opt/app/SHA256SUMS", m.hex(64)+"  passwords.tar.gz\n"+m.hex(64)+" *token-tool\n")
	m.keep("opt/app/config.tmpl", "password: {{ .Values.db.password | quote }}\n")
	m.keep("etc/nginx/conf.d/auth.conf", "auth_basic_user_file /etc/nginx/.htpasswd;\nssl_certificate_key /etc/ssl/private/site.key;\n")
	m.keep("opt/app/site.pem", m.certificate("site.example", m.ed().public))
	m.keep("opt/app/images.txt", "registry.k8s.io/pause@sha256:"+m.hex(64)+"\n")
	if m.disk == "secrets" {
		secret := m.of(mixed, 3) + "8Q~" + m.of(mixed, 34)
		m.write("etc/kubernetes/azure.json", `{"aadClientId":"0000","aadClientSecret":"`+secret+`","tenantId":"x"}`)
		m.plant(shared, "etc/kubernetes/azure.json", secret, "the service principal's secret")
	} else {
		m.keep("etc/kubernetes/azure.json", `{"useManagedIdentityExtension":true,"aadClientId":"msi","aadClientSecret":"msi"}`)
	}
}

// system is what makes a computer one of its own.
func (m *maker) system() {
	id := strings.TrimSpace(m.files["etc/machine-id"].data)
	if id == "" {
		id = m.hex(32)
	}
	m.files["etc/machine-id"] = entry{data: id + "\n", mode: 0o444}
	m.plant(trace, "etc/machine-id", id, "the machine-id")
	if m.r.IntN(2) == 0 {
		m.write("var/lib/dbus/machine-id", id+"\n")
	} else {
		m.files["var/lib/dbus/machine-id"] = entry{link: "/etc/machine-id"}
	}
	m.own("etc/hostname", m.host+"\n")
	m.plant(trace, "etc/hostname", m.host, "the host name")
	m.write("etc/hosts", "127.0.0.1 localhost\n127.0.1.1 "+m.host+".internal "+m.host+"\n"+nodeAddress+" node\n")
	m.plant(stays, "etc/hosts", "127.0.0.1 localhost", "the line of localhost")
	m.plant(trace, "etc/hosts", nodeAddress, "the address")
	if _, there := m.files["etc/ssh/ssh_host_ed25519_key"]; !there {
		k := m.ed()
		m.own("etc/ssh/ssh_host_ed25519_key", k.text)
		m.own("etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 "+base64.StdEncoding.EncodeToString(m.blob(k))+" root@"+m.host+"\n")
		m.secret("etc/ssh/ssh_host_ed25519_key", k, "the SSH host key")
	}
	m.own("var/lib/systemd/random-seed", string(m.bytes(64)))
	credential := m.of(mixed, 40)
	m.own("var/lib/systemd/credential.secret", credential)
	m.plant(identity, "var/lib/systemd/credential.secret", credential, "systemd's credential secret")
	m.own("etc/netplan/50-cloud-init.yaml", "network: {ethernets: {eth0: {match: {macaddress: \""+m.mac()+"\"}}}}\n")
	m.own("var/lib/dhcp/dhclient.eth0.leases", "fixed-address "+nodeAddress+";\n")
	m.own("var/log/journal/"+id+"/system.journal", "LPKSHHRH "+m.host)
	m.write("var/log/syslog", m.host+" kubelet: started\n")
	m.own("var/log/syslog.1", m.host+" rotated\n")
	typed := m.of(mixed, 24)
	m.own("root/.bash_history", "curl -H 'Authorization: Bearer "+typed+"' https://example.org\n")
	m.plant(identity, "root/.bash_history", typed, "what was typed")
	m.own("home/azureuser/.ssh/authorized_keys", "ssh-ed25519 AAAA azureuser\n")
	m.own("tmp/left-over", m.host)
	if _, there := m.files["srv/notes.txt"]; !there {
		m.keep("srv/notes.txt", "the first of these was "+m.host+"\n") // a mention does no harm
	}
}

func (m *maker) mac() string {
	h := m.hex(6)
	return "00:0d:3a:" + h[:2] + ":" + h[2:4] + ":" + h[4:]
}

// azure is what cloud-init and the Azure agent leave.
func (m *maker) azure(customData string) {
	instance := m.hex(8) + "-1111-2222-3333-" + m.hex(12)
	folder := "var/lib/cloud/instances/" + instance
	m.files["var/lib/cloud/instance"] = entry{link: "/" + folder}
	m.plant(gone, "var/lib/cloud/instance", "", "cloud-init's instance")
	m.own(folder+"/sem/config_ssh", "x")
	m.own("var/lib/cloud/data/previous-hostname", m.host+"\n")
	m.own("var/lib/cloud/data/instance-id", instance+"\n")
	m.plant(trace, "var/lib/cloud/data/instance-id", instance, "the instance's id")
	text := base64.StdEncoding.EncodeToString([]byte(customData))
	switch m.r.IntN(3) { // who provisions
	case 0:
		m.own("var/lib/waagent/ovf-env.xml", `<?xml version="1.0"?><Environment xmlns:wa="urn:x"><wa:ProvisioningSection><UserName>azureuser</UserName><CustomData>`+text+`</CustomData></wa:ProvisioningSection></Environment>`)
	case 1:
		m.own("var/lib/waagent/CustomData", text)
	}
	m.own(folder+"/user-data.txt", customData)
	m.own("var/lib/waagent/published_hostname", m.host)
	m.own("var/lib/waagent/Incarnation", "1")
	m.own("var/lib/waagent/provisioned", instance)
	k := m.ec()
	m.own("var/lib/waagent/TransportPrivate.pem", k.text)
	m.secret("var/lib/waagent/TransportPrivate.pem", k, "the agent's transport key")
	m.own(settingsFolder+"config/0.settings", `{"runtimeSettings":[{"handlerSettings":{"publicSettings":{}}}]}`)
	m.own(settingsFolder+"config/HandlerStatus", "{}")
	m.own(settingsFolder+"status/0.status", "[]")
	m.own(settingsFolder+"mrseq", "0")
	if _, there := m.files[settingsFolder+"bin/custom-script"]; !there {
		m.keep(settingsFolder+"bin/custom-script", "\x7fELF")
	}
}

// join is a file by which a clone joins without customData.
func (m *maker) join(at, data, value string) {
	m.write(at, data)
	m.joinBy = append(m.joinBy, plant{path: at, value: value})
}

// joins is what the pool's customData puts on a disk for the node to join by. It is the
// same on each of the pool's nodes.
func (m *maker) joins() {
	m.joinBy = nil
	credential := func(at, data, value, what string) {
		m.join(at, data, value)
		m.plant(shared, at, value, what)
	}
	alone := m.disk != "nojoin"
	secrets := m.disk == "secrets"
	token := m.token()
	unit := "[Service]\nExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --bootstrap-kubeconfig=/" + bootstrapKubelet + "\n"
	switch m.kind {
	case byKubeadm:
		m.write("etc/systemd/system/kubelet.service", unit)
		m.write("var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock\"\n")
		m.write("etc/kubernetes/pki/ca.crt", m.certificate("kubernetes", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public()))
		for _, at := range []string{bootstrapKubelet, "etc/kubernetes/pki/ca.crt", "etc/kubernetes/kubelet.conf"} {
			m.plant(rejoins, at, "", "a file for which kubeadm join refuses a node")
		}
		if alone {
			credential(bootstrapKubelet, kubeconfig("tls-bootstrap-token-user", "token: "+token), token, "the bootstrap token")
		}
		return
	case byK3s:
		m.write("etc/systemd/system/k3s-agent.service", "[Service]\nEnvironmentFile=-/etc/systemd/system/k3s-agent.service.env\nExecStart=/usr/local/bin/k3s agent\n")
		m.write("etc/rancher/k3s/config.yaml", "server: https://10.0.0.1:6443\n")
		if secrets {
			k3s := "K10" + m.hex(64) + "::server:" + m.hex(32)
			credential("etc/systemd/system/k3s-agent.service.env", "K3S_URL='https://10.0.0.1:6443'\nK3S_TOKEN='"+k3s+"'\n", k3s, "k3s' token")
			return
		}
	case byAKS:
		m.write("etc/default/kubelet", "KUBELET_FLAGS=--kubeconfig=/var/lib/kubelet/kubeconfig --bootstrap-kubeconfig=/var/lib/kubelet/bootstrap-kubeconfig\n")
		if secrets {
			credential("var/lib/kubelet/bootstrap-kubeconfig", kubeconfig("kubelet-bootstrap", "token: "+token), token, "the bootstrap token")
			return
		}
	default:
		m.write("etc/systemd/system/kubelet.service", unit)
	}
	if alone {
		service := "[Service]\nType=oneshot\nExecStart=/usr/bin/ortet-node --verbose join --server https://10.0.0.1:8443\n"
		m.join(joinUnit, service, service)
	}
}

// kubelet is what a node has once it has joined.
func (m *maker) kubelet() {
	client, serving := m.ec(), m.ec()
	certificate := m.certificate("system:node:"+m.host, client.public)
	m.write("var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n")
	token, signature := m.podToken()
	at := "var/lib/kubelet/pods/" + m.hex(8) + "/volumes/kubernetes.io~projected/kube-api-access/token"
	m.own(at, token)
	m.plant(identity, at, signature, "a pod's token")
	m.own("var/lib/kubelet/cpu_manager_state", "{}")
	m.own("var/lib/cni/networks/cbr0/10.244.1.2", "pod")
	m.own("var/log/pods/ns_pod_uid/c/0.log", m.host)
	swap := "\x00\x00" + strings.Repeat(" ", 4084) + "SWAPSPACE2" + strings.Repeat(" ", 900) + client.text
	m.write("swapfile", swap)
	if m.kind == byK3s {
		password := m.hex(32)
		m.own("etc/rancher/node/password", password+"\n")
		m.plant(identity, "etc/rancher/node/password", password, "the node password")
		agent := "var/lib/rancher/k3s/agent/"
		m.own(agent+"client-kubelet.crt", certificate)
		m.own(agent+"client-kubelet.key", client.text)
		m.own(agent+"serving-kubelet.key", serving.text)
		m.own(agent+"kubelet.kubeconfig", kubeconfig("user", "client-certificate: /"+agent+"client-kubelet.crt"))
		m.secret(agent+"client-kubelet.key", client, "the kubelet's client key")
		m.secret(agent+"serving-kubelet.key", serving, "the kubelet's serving key")
	} else {
		m.own(kubeletPKI+"kubelet-client-2000-01-01.pem", certificate+client.text)
		m.files[kubeletPKI+"kubelet-client-current.pem"] = entry{link: "kubelet-client-2000-01-01.pem"}
		m.plant(gone, kubeletPKI+"kubelet-client-current.pem", "", "the kubelet's client certificate")
		m.own(kubeletPKI+"kubelet.key", serving.text)
		m.secret(kubeletPKI+"kubelet-client-2000-01-01.pem", client, "the kubelet's client key")
		m.secret(kubeletPKI+"kubelet.key", serving, "the kubelet's serving key")
		data := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
		embedded := kubeconfig("default-auth", "client-certificate-data: "+data(certificate)+"\n    client-key-data: "+data(client.text))
		named := kubeconfig("default-auth", "client-certificate: /"+kubeletPKI+"kubelet-client-current.pem\n    client-key: /"+kubeletPKI+"kubelet-client-current.pem")
		own := "etc/kubernetes/kubelet.conf"
		if m.kind == byAKS {
			own = "var/lib/kubelet/kubeconfig"
		}
		if m.r.IntN(2) == 0 {
			embedded, named = named, embedded
		}
		m.own(own, embedded)
		if embedded != named && m.r.IntN(2) == 0 {
			m.own("root/.kube/config", named)
		}
	}
	if _, asks := m.files[joinUnit]; asks {
		m.admitted()
	}
}

// admitted is what ortet-node join leaves on the disk of a node.
func (m *maker) admitted() {
	m.own("var/lib/ortet/identity.json", `{"node":"`+m.host+`"}`)
	token := m.token()
	at := bootstrapKubelet
	if m.kind == byK3s {
		at = "etc/rancher/k3s/config.yaml.d/50-ortet.yaml"
		m.own(at, "node-name: "+m.host+"\ntoken: "+token+"\n")
	} else {
		m.own(at, kubeconfig("ortet", "token: "+token))
	}
	m.plant(identity, at, token, "the token that only "+m.host+" was given")
}

// users is what people and their programs leave: other secrets, and copies of the node's
// identity.
func (m *maker) users(others, strays int) {
	forms := m.others()
	m.r.Shuffle(len(forms), func(i, j int) { forms[i], forms[j] = forms[j], forms[i] })
	for _, p := range forms[:min(others, len(forms))] {
		m.write(p.path, p.what)
		if p.what = "a secret of others"; p.class == "" {
			p.class = private
		}
		m.plants = append(m.plants, p)
	}
	copies := m.copies()
	m.r.Shuffle(len(copies), func(i, j int) { copies[i], copies[j] = copies[j], copies[i] })
	for _, p := range copies[:min(strays, len(copies))] {
		m.write(p.path, p.what)
		p.what, p.stray = "a copy of the identity", true
		m.plants = append(m.plants, p)
	}
}

// others gives secrets that no node needs; what is the file's text.
func (m *maker) others() []plant {
	gitlab, password, npm := "glpat-"+m.of(mixed, 20), m.of(mixed, 6)+"7"+m.of(mixed, 6)+"3"+m.of(mixed, 4)+"9Q", m.of(plain, 18)+"4z"
	site, inner, cloud := m.ec(), m.ec(), m.of(mixed, 76)+"+ASt"+m.of(mixed, 5)+"A=="
	stripe, mail, shipped := "sk_live_"+m.of(mixed, 10)+"4"+m.of(mixed, 13), "SG."+m.of(mixed, 22)+"."+m.of(mixed, 43), m.of(mixed, 19)+"5Z"
	wrapped := base64.StdEncoding.EncodeToString([]byte(inner.text))
	return []plant{
		{path: "opt/ci/clone.sh", value: gitlab, what: "git clone https://oauth2:" + gitlab + "@gitlab.example/infra/node.git\n"},
		// A private key counts as the pool's, since nodes may join by it.
		{class: shared, path: "opt/tls/site.key", value: site.needles[0], what: site.text},
		{class: shared, path: "opt/app/secret.yaml", value: wrapped[:60], what: "apiVersion: v1\nkind: Secret\ndata:\n  tls.key: " + wrapped + "\n"},
		{path: "opt/app/db.json", value: password, what: `{"user":"app","password":"` + password + `"}`},
		{path: "home/azureuser/.npmrc", value: npm, what: "//npm.example.org/:_password=" + npm + "\n"},
		{path: "srv/backup/upload.env", value: cloud, what: "AZURE_STORAGE_CONNECTION_STRING=DefaultEndpointsProtocol=https;AccountName=backup;AccountKey=" + cloud + ";EndpointSuffix=core.windows.net\n"},
		{path: "opt/shop/.env", value: stripe, what: "STRIPE_SECRET_KEY=" + stripe + "\n"},
		{path: "etc/default/mailer", value: mail, what: "SENDGRID_API_KEY=" + mail + "\n", needs: true},
		{path: "opt/app/shipped.conf", value: shipped, what: "db_password = " + shipped + "\n", needs: true},
	}
}

// copies gives copies of the node's identity where no rule removes them.
func (m *maker) copies() []plant {
	var all []plant
	add := func(at, value, text string) {
		all = append(all, plant{class: identity, path: at, value: value, what: text})
	}
	host := m.files["etc/ssh/ssh_host_ed25519_key"].data
	data := base64.StdEncoding.EncodeToString([]byte(host))
	add("srv/backup/host_key", strings.Split(host, "\n")[1], host)
	add("opt/backup/host_key.b64", data[:60], data+"\n")
	id := strings.TrimSpace(m.files["etc/machine-id"].data)
	all = append(all, plant{class: trace, path: "etc/app/agent.conf", value: id, what: "id=" + id + "\n"},
		plant{class: trace, path: "etc/app/node.conf", value: m.host, what: "node = " + m.host + "\n"})
	for at, e := range m.files {
		if strings.HasSuffix(at, "kubelet-client-2000-01-01.pem") || strings.HasSuffix(at, "client-kubelet.key") {
			block, rest := pem.Decode([]byte(e.data))
			if block.Type == "CERTIFICATE" {
				block, _ = pem.Decode(rest)
			}
			digits := hex.EncodeToString(block.Bytes)
			add("opt/backup/client.hex", digits[80:130], digits+"\n")
			line := string(pem.EncodeToMemory(block))
			add("home/azureuser/join.json", strings.Split(line, "\n")[1], fmt.Sprintf("{\"key\":%q}\n", line))
		}
	}
	return all
}

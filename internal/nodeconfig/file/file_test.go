package file_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/docs/schema"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/nodeconfig/file"
	"github.com/ortet/ortet/internal/yamlfile"
)

var now = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

const head = "apiVersion: ortet.io/v1alpha1\nkind: NodeConfig\nspec:\n" // lines 1 to 3

// certificate is one of "corp", signed by itself, as PEM that is indented for YAML.
func certificate(t *testing.T, ca bool, until time.Time) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "corp"},
		NotBefore: until.AddDate(-1, 0, 0), NotAfter: until, BasicConstraintsValid: true, IsCA: ca,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return indent(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func privateKey(t *testing.T) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return indent(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func indent(text []byte) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n      ") + "\n"
}

func TestRightFileIsRead(t *testing.T) {
	ca := certificate(t, true, now.AddDate(1, 0, 0))
	text := `apiVersion: ortet.io/v1alpha1
kind: NodeConfig
metadata:
  name: workers
spec:
  files:
  - path: /etc/motd
    mode: "0644"
    owner: root:root
    content: |
      hello
    restart: [motd-news.timer]
  units:
  - name: backup@data.service
    content: |
      [Service]
      ExecStart=/bin/true
      [Install]
      WantedBy=multi-user.target
    enabled: true
    started: true
  - name: containerd.service
    dropIns:
    - name: 10-memory.conf
      content: |
        [Service]
        MemoryMax=2G
  sysctls:
    net.core.somaxconn: "4096"
    net/ipv4/conf/eth0.1/forwarding: "1"
  kubelet:
    systemReserved: {memory: 500Mi, cpu: 100m}
    evictionHard: {memory.available: 5%}
    maxPods: 60
    logging: {verbosity: 3}
    imageMinimumGCAge: 5m
    shutdownGracePeriodByPodPriority:
    - {priority: 1000, shutdownGracePeriodSeconds: 30}
    clusterDNS: [10.43.0.10]
  registryMirrors:
  - registry: docker.io
    endpoints: ["https://mirror.example", "http://10.0.0.4:5000"]
  - registry: _default
    endpoints: ["https://mirror.example"]
  caCertificates:
  - name: corp
    pem: |
` + ca
	c, err := file.ParseAt("n.yaml", []byte(text), now)
	if err != nil {
		t.Fatal(err)
	}
	if c.Files[0].Content != "hello\n" || c.Units[1].DropIns[0].Name != "10-memory.conf" || !*c.Units[0].Started ||
		c.Kubelet["maxPods"] != float64(60) || c.RegistryMirrors[0].Endpoints[1] != "http://10.0.0.4:5000" {
		t.Errorf("read %+v", c)
	}
	again, err := json.Marshal(map[string]any{"apiVersion": file.APIVersion, "kind": file.Kind, "spec": c})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := file.ParseAt("n.json", again, now); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("%v: read again %+v", err, got)
	}
	if _, err := file.ParseAt("n.yaml", []byte(head[:len(head)-1]+" {}\n"), now); err != nil {
		t.Errorf("the empty configuration: %v", err)
	}
}

// wrong are what follows head, and the problems without the file's name.
var wrong = []struct{ text, want string }{
	// Files.
	{"  files:\n  - path: /etc/motd\n", "5: spec.files[0].content: is missing; add it"},
	{"  files:\n  - {path: etc/motd, content: x}", `5: spec.files[0].path: "etc/motd" is not valid; use an absolute path, such as /etc/motd`},
	{"  files:\n  - {path: /etc/../etc/motd, content: x}", `5: spec.files[0].path: "/etc/../etc/motd" is not a clean path; use "/etc/motd"`},
	{"  files:\n  - {path: /etc/motd/, content: x}", `5: spec.files[0].path: "/etc/motd/" is not a clean path; use "/etc/motd"`},
	{"  files:\n  - {path: /etc/motd, content: x}\n  - {path: /etc/motd, content: y}", `6: spec.files[1].path: "/etc/motd" is the path of another file already; delete one of them`},
	{"  files:\n  - {path: /etc/app/x, content: x}\n  - {path: /etc/app, content: y}", `5: spec.files[0].path: "/etc/app/x" lies in "/etc/app", which is a file here; use another path`},
	{"  files:\n  - {path: /etc/kubernetes/kubelet.conf, content: x}", "5: spec.files[0].path: /etc/kubernetes/kubelet.conf holds credentials of the node; a document cannot set it"},
	{"  files:\n  - {path: /etc/systemd/system/a.service, content: x}", "5: spec.files[0].path: /etc/systemd/system/a.service is written from spec.units; use that"},
	{"  files:\n  - {path: /etc/kubernetes/kubelet.conf.d/90-ortet.conf, content: x}", "5: spec.files[0].path: /etc/kubernetes/kubelet.conf.d/90-ortet.conf is written from spec.kubelet; use that"},
	{"  files:\n  - {path: /etc/ortet/config.json, content: x}", "5: spec.files[0].path: /etc/ortet/config.json is Ortet's own; a document cannot set it"},
	{"  files:\n  - {path: /proc, content: x}", "5: spec.files[0].path: /proc is the kernel's or lost at boot; a document cannot set it"},
	{"  files:\n  - {path: /etc/ssh/ssh_host_rsa_key, content: x}", "5: spec.files[0].path: /etc/ssh/ssh_host_rsa_key is the machine's identity; a document cannot set it"},
	{"  files:\n  - {path: /a, mode: 0644, content: x}", `5: spec.files[0].mode: is a number; put it in quotes: "0644"`},
	{"  files:\n  - {path: /a, mode: \"4755\", content: x}", `5: spec.files[0].mode: "4755" is not valid; use octal permissions, such as "0644", without setuid, setgid and the sticky bit`},
	{"  files:\n  - {path: /a, owner: root, content: x}", `5: spec.files[0].owner: "root" is not valid; use USER:GROUP, such as root:root or 1000:1000`},
	{"  files:\n  - path: /a\n    content: x\n    restart: [sshd]", `7: spec.files[0].restart[0]: "sshd" is not a unit's name; use one such as backup.service, which ends in service, socket, mount, automount, swap, target, path, timer or slice`},
	{"  files:\n  - {path: /a, content: x, contents: y}", "5: spec.files[0].contents: unknown field; use one of content, mode, owner, path, restart"},

	// Units.
	{"  units:\n  - {name: a b.service, started: true}", `5: spec.units[0].name: "a b.service" is not a unit's name; use one such as backup.service, which ends in service, socket, mount, automount, swap, target, path, timer or slice`},
	{"  units:\n  - {name: a@.service, started: true}", "5: spec.units[0].name: a@.service is a template, which cannot be started; use an instance, such as a@1.service"},
	{"  units:\n  - {name: ortet-config.service, started: false}", "5: spec.units[0].name: ortet-config.service is Ortet's own; a document cannot change it"},
	{"  units:\n  - name: a.service", "5: spec.units[0]: sets nothing; give content, dropIns, enabled or started"},
	{"  units:\n  - name: a.service\n    content: x\n    enabled: true", "7: spec.units[0].enabled: is true, but content has no [Install] section; add one, or delete enabled"},
	{"  units:\n  - {name: a.service, started: true}\n  - {name: a.service, enabled: true}", `6: spec.units[1].name: "a.service" is the name of another unit already; put both into one`},
	{"  units:\n  - name: a.service\n    dropIns:\n    - {name: x, content: y}", `7: spec.units[0].dropIns[0].name: "x" has length 1; use 6 to 200 characters`},
	{"  units:\n  - name: a.service\n    dropIns:\n    - {name: ../x.conf, content: y}", `7: spec.units[0].dropIns[0].name: "../x.conf" is not valid; use a name that ends in .conf, such as 10-memory.conf`},

	// Sysctls.
	{"  sysctls:\n    net.core.somaxconn: 4096", `5: spec.sysctls[net.core.somaxconn]: is a number; put it in quotes: "4096"`},
	{"  sysctls:\n    somaxconn: \"1\"", `5: spec.sysctls.somaxconn: "somaxconn" is not a sysctl's name; use one such as net.core.somaxconn`},
	{"  sysctls:\n    net.core.a: \"1\"\n    net/core/a: \"2\"", `6: spec.sysctls[net/core/a]: "net/core/a" is the same as "net.core.a"; delete one of them`},

	// Kubelet.
	{"  kubelet:\n    clusterDNS: [10.0.0.10]\n    maxPod: 50", "6: spec.kubelet.maxPod: unknown field of KubeletConfiguration (v1beta1, as of Kubernetes 1.36); did you mean maxPods?"},
	{"  kubelet:\n    maxPods:", "5: spec.kubelet.maxPods: is empty; give a value, or delete the line"},
	{"  kubelet: {evictionHard: {1: 5%}}", "4: spec.kubelet.evictionHard: is of type !!map, or has a name that is not text; put it in quotes"},
	{"  kubelet:\n    systemReservd:\n      memory: 500Mi", "5: spec.kubelet.systemReservd: unknown field of KubeletConfiguration (v1beta1, as of Kubernetes 1.36); did you mean systemReserved?"},
	{"  kubelet: {zzz: 1}", "4: spec.kubelet.zzz: unknown field of KubeletConfiguration (v1beta1, as of Kubernetes 1.36); delete it"},
	{"  kubelet:\n    memorySwap:\n      swapbehaviour: x", "6: spec.kubelet.memorySwap.swapbehaviour: unknown field of KubeletConfiguration (v1beta1, as of Kubernetes 1.36); did you mean swapBehavior?"},
	{"  kubelet:\n    shutdownGracePeriodByPodPriority:\n    - {priority: 1, shutdownGracePeriodSecond: 3}", "6: spec.kubelet.shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSecond: unknown field of KubeletConfiguration (v1beta1, as of Kubernetes 1.36); did you mean shutdownGracePeriodSeconds?"},
	{"  kubelet:\n    maxPods: many\n    seccompDefault: 1", "5: spec.kubelet.maxPods: is text, and the kubelet takes int32; correct it\n6: spec.kubelet.seccompDefault: is a number, and the kubelet takes bool; correct it"},
	{"  kubelet:\n    systemReserved: 500Mi", "5: spec.kubelet.systemReserved: is text, and the kubelet takes map[string]string; correct it"},
	{"  kubelet:\n    evictionHard:\n      memory.available: 5", "6: spec.kubelet.evictionHard[memory.available]: is a number, and the kubelet takes string; correct it"},
	{"  kubelet:\n    kubeReserved:\n      mem: 500Mi", "6: spec.kubelet.kubeReserved.mem: cannot be reserved; use cpu, memory, ephemeral-storage or pid"},
	{"  kubelet:\n    systemReserved:\n      memory: 500mb", `6: spec.kubelet.systemReserved.memory: "500mb" is not a quantity; use one such as 500Mi or 250m`},
	{"  kubelet:\n    syncFrequency: 5", "5: spec.kubelet.syncFrequency: is a number, and the kubelet takes string; correct it"},
	{"  kubelet:\n    syncFrequency: 5 minutes", `5: spec.kubelet.syncFrequency: time: unknown unit " minutes" in duration "5 minutes"; correct it`},
	{"  kubelet:\n    cpuManagerPolicy: static\n    cgroupDriver: systemd", "5: spec.kubelet.cpuManagerPolicy: cannot be changed on a live node: it needs a drain and the removal of the kubelet's state file; set it in a new image\n" +
		"6: spec.kubelet.cgroupDriver: cannot be changed on a live node: running containers are in the cgroups of the present setting; set it in a new image"},
	{"  kubelet: {kind: KubeletConfiguration}", "4: spec.kubelet.kind: is set by Ortet; delete the field"},

	// Registry mirrors.
	{"  registryMirrors:\n  - {registry: \"https://docker.io\", endpoints: [\"https://a.example\"]}", `5: spec.registryMirrors[0].registry: "https://docker.io" is not valid; use HOST, HOST:PORT or _default, such as docker.io`},
	{"  registryMirrors:\n  - registry: docker.io\n    endpoints: [mirror.example]", "6: spec.registryMirrors[0].endpoints[0]: is not a URL of a mirror; use https://HOST, or http://HOST:PORT"},
	{"  registryMirrors:\n  - registry: docker.io\n    endpoints: [\"https://me:it@a.example\"]", "6: spec.registryMirrors[0].endpoints[0]: has credentials in it, and every process of a machine can read userData; delete them"},
	{"  registryMirrors:\n  - registry: docker.io\n    endpoints: []", "6: spec.registryMirrors[0].endpoints: has length 0; use 1 to 10 items"},
	{"  registryMirrors:\n  - {registry: a.io, endpoints: [\"https://a\"]}\n  - {registry: A.io, endpoints: [\"https://b\"]}", `6: spec.registryMirrors[1].registry: "A.io" has mirrors already; put all endpoints into one`},

	// Certificates.
	{"  caCertificates:\n  - {name: Corp, pem: x}", `5: spec.caCertificates[0].name: "Corp" is not valid; use a-z, 0-9 and -, with no - at the start or end`},
	{"  caCertificates:\n  - {name: a, pem: x}\n", "5: spec.caCertificates[0].pem: has no certificate; give PEM, which begins with -----BEGIN CERTIFICATE-----"},

	// Whole files.
	{"  kernelModules: [a]", "4: spec.kernelModules: unknown field; use one of caCertificates, files, kubelet, registryMirrors, sysctls, units"},
	{"  {}\n---\na: b", "5: second document; keep one configuration in a file"},
}

func problems(t *testing.T, text string) string {
	t.Helper()
	_, err := file.ParseAt("n.yaml", []byte(text), now)
	if err == nil {
		return ""
	}
	var invalid *yamlfile.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("%T: %v", err, err)
	}
	return strings.ReplaceAll(err.Error(), "n.yaml:", "")
}

func TestWrongFilesAreReportedByLineAndField(t *testing.T) {
	for _, test := range wrong {
		if got := problems(t, head+test.text); got != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.text, got, test.want)
		}
	}
}

func TestOnlyCertificatesOfCAsAreTaken(t *testing.T) {
	const at = "spec.caCertificates[0].pem: "
	good := certificate(t, true, now.AddDate(1, 0, 0))
	second := 7 + strings.Count(good, "\n")
	for what, test := range map[string]struct{ pem, want string }{
		"leaf":    {certificate(t, false, now.AddDate(1, 0, 0)), "7: " + at + `certificate of "CN=corp" is not a CA's; give the certificate of its issuer, "CN=corp"`},
		"expired": {certificate(t, true, now.AddDate(0, 0, -1)), "7: " + at + `certificate of "CN=corp" expired at 2026-05-31T00:00:00Z; give its successor`},
		"future":  {certificate(t, true, now.AddDate(2, 0, 0)), "7: " + at + `certificate of "CN=corp" is not valid before 2027-06-01T00:00:00Z; use it from then on`},
		"second is a leaf": {good + certificate(t, false, now.AddDate(1, 0, 0)),
			fmt.Sprintf("%d: %s", second, at) + `certificate of "CN=corp" is not a CA's; give the certificate of its issuer, "CN=corp"`},
		"private key": {good + privateKey(t), fmt.Sprintf("%d: %s", second, at) +
			"has a private key, and every process of a machine can read userData; delete it, and consider the key as published"},
		"text":    {good + "      hello\n", "6: " + at + "has text after certificates, or a certificate that is cut off; delete or complete it"},
		"cut off": {good[:len(good)-40] + "\n" + good, "6: " + at + "has text after certificates, or a certificate that is cut off; delete or complete it"},
		"two":     {"      # corp\n" + good + "      # again\n" + good, ""}, // as curl's bundle has comments
	} {
		if got := problems(t, head+"  caCertificates:\n  - name: corp\n    pem: |\n"+test.pem); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", what, got, test.want)
		}
	}
}

func TestSecretsAreRefusedAndNotShown(t *testing.T) {
	const secret = "hV7qKz2mWc9LpXs4TdNb8RfY"
	for _, test := range []struct{ text, at string }{
		{"  files:\n  - path: /etc/app.conf\n    content: |\n      user: app\n      password: " + secret + "\n", "8: spec.files[0].content: "},
		{"  files:\n  - path: /etc/app.key\n    content: |\n" + privateKey(t), "7: spec.files[0].content: "},
		{"  units:\n  - name: app.service\n    dropIns:\n    - name: 10-env.conf\n      content: |\n        [Service]\n        Environment=DB_PASSWORD=" + secret + "\n", "10: spec.units[0].dropIns[0].content: "},
		{"  kubelet:\n    staticPodURLHeader:\n      Authorization: [\"Bearer " + secret + "\"]\n", "6: spec.kubelet.staticPodURLHeader.Authorization[0]: "},
	} {
		got := problems(t, head+test.text)
		if !strings.Contains(got, test.at+"looks like a secret (rule ") || strings.Contains(got, secret) {
			t.Errorf("%s\n got %s\nwant %s…", test.text, got, test.at)
		}
	}
}

func TestFileThatDoesNotFitIsRefused(t *testing.T) {
	r := mathrand.New(mathrand.NewPCG(1, 1))
	random := make([]byte, nodeconfig.MaxUserData)
	for i := range random {
		random[i] = " \nabcdefghijklmnopqrstuvwxyz"[r.IntN(28)]
	}
	with := func(content []byte) string {
		return head + "  files:\n  - path: /etc/large\n    content: |\n      x" + strings.ReplaceAll(string(content), "\n", "\n      ") + "\n"
	}
	got := problems(t, with(random))
	if !strings.HasPrefix(got, "3: spec: configuration is too large for userData: ") || !strings.HasSuffix(got, "; shorten it, or have nodes fetch large files") {
		t.Errorf("got %s", got)
	}
	if got := problems(t, with(bytes.Repeat([]byte("same line\n"), nodeconfig.MaxUserData/10))); got != "" {
		t.Errorf("what packs well: %s", got)
	}
}

func TestKubeletFieldsNeedTheirVersion(t *testing.T) {
	c := nodeconfig.Config{Kubelet: map[string]any{"maxPods": 50, "crashLoopBackOff": map[string]any{}, "memoryReservationPolicy": "None"}}
	err := file.CheckKubelet(c, []string{"v1.32.4+k3s1", "v1.31.9", "v1.36.0", "v1.31.9"})
	want := "check kubelet fields: crashLoopBackOff needs a kubelet of v1.32 or newer, and the pool has v1.31.9; delete the field, or upgrade the pool first\n" +
		"check kubelet fields: memoryReservationPolicy needs a kubelet of v1.36 or newer, and the pool has v1.31.9, v1.32.4+k3s1; delete the field, or upgrade the pool first"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if err := file.CheckKubelet(c, []string{"v1.36.3+k3s1"}); err != nil {
		t.Error(err)
	}
	if err := file.CheckKubelet(c, []string{"unknown"}); err == nil {
		t.Error("a version that is none was taken")
	}
}

// Editors show descriptions, and Parse shows what a pattern wants. Fields are those of
// nodeconfig.Config.
func TestSchemaDescribesEachField(t *testing.T) {
	type object struct {
		Properties map[string]map[string]any `json:"properties"`
	}
	var s struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal(schema.NodeConfig, &s); err != nil {
		t.Fatal(err)
	}
	s.Defs[""] = s.object
	for of, o := range s.Defs {
		for name, field := range o.Properties {
			if field["description"] == nil || (field["pattern"] == nil) != (field["patternErrorMessage"] == nil) {
				t.Errorf("%s.%s lacks description or patternErrorMessage", of, name)
			}
		}
	}
	for of, typ := range map[string]reflect.Type{
		"Spec": reflect.TypeFor[nodeconfig.Config](), "File": reflect.TypeFor[nodeconfig.File](), "Unit": reflect.TypeFor[nodeconfig.Unit](),
		"DropIn": reflect.TypeFor[nodeconfig.DropIn](), "RegistryMirror": reflect.TypeFor[nodeconfig.RegistryMirror](), "CACertificate": reflect.TypeFor[nodeconfig.CACertificate](),
	} {
		var want, got []string
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			want = append(want, name)
		}
		for name := range s.Defs[of].Properties {
			got = append(got, name)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%s has %q, and the type has %q", of, got, want)
		}
	}
}

// FuzzParse: no input panics, and what is accepted can be signed.
func FuzzParse(f *testing.F) {
	for _, test := range wrong {
		f.Add([]byte(head + test.text))
	}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := file.ParseAt("n.yaml", text, now)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a cause")
			}
			return
		}
		if _, err := (nodeconfig.Document{Pool: "/p", Generation: 1, Config: c}).Sign(key); err != nil {
			t.Fatal(err)
		}
	})
}

package generalize

import (
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/crypto/ssh"

	"github.com/ortet/ortet/internal/wire"
)

// wrap breaks text into lines that begin with indent.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	for ; len(text) > width; text = text[width:] {
		b.WriteString(indent + text[:width] + "\n")
	}
	return b.String() + indent + text + "\n"
}

func zip(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func utf16LE(text string) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

// The donor's key is found in every wrapping that people and tools put it into, and
// nothing accepts or removes it.
func TestOwnKeyInEveryWrapping(t *testing.T) {
	t.Parallel()
	b64 := base64.StdEncoding.EncodeToString
	d := newDonor(t).capz()
	key, files := d.read("var/lib/kubelet/pki/kubelet.key"), map[string]string{}
	block, _ := pem.Decode([]byte(key))
	for name, wrapped := range map[string]func(t *testing.T, key string, der []byte) string{
		"plain": func(_ *testing.T, key string, _ []byte) string { return key },
		"indented in YAML": func(_ *testing.T, key string, _ []byte) string {
			return "data:\n  key: |\n    " + strings.ReplaceAll(key, "\n", "\n    ")
		},
		"a JSON string": func(_ *testing.T, key string, _ []byte) string {
			j, _ := json.Marshal(key)
			return `{"key":` + string(j) + `}`
		},
		"base64":                func(_ *testing.T, key string, _ []byte) string { return "key: " + b64([]byte(key)) },
		"base64 in lines of 76": func(_ *testing.T, key string, _ []byte) string { return wrap(b64([]byte(key)), "", 76) },
		"base64 in indented lines": func(_ *testing.T, key string, _ []byte) string {
			return "key: |\n" + wrap(b64([]byte(key)), "      ", 60)
		},
		"base64 of a file, offset 1": func(_ *testing.T, key string, _ []byte) string { return b64([]byte("a line before it.\n" + key)) },
		"base64 of a file, offset 2": func(_ *testing.T, key string, _ []byte) string { return b64([]byte("a line before it..\n" + key)) },
		"base64 of a file, offset 3": func(_ *testing.T, key string, _ []byte) string { return b64([]byte("a line before it...\n" + key)) },
		"base64url": func(_ *testing.T, key string, _ []byte) string {
			return base64.RawURLEncoding.EncodeToString([]byte(key))
		},
		"hex":             func(_ *testing.T, _ string, der []byte) string { return hex.EncodeToString(der) },
		"hex of the file": func(_ *testing.T, key string, _ []byte) string { return hex.EncodeToString([]byte(key)) },
		"DER":             func(_ *testing.T, _ string, der []byte) string { return string(der) },
		"gzip":            func(t *testing.T, key string, _ []byte) string { return zip(t, key) },
		"gzip in base64": func(t *testing.T, key string, _ []byte) string {
			return "encoding: gz+b64\ncontent: " + b64([]byte(zip(t, key)))
		},
		"UTF-16": func(_ *testing.T, key string, _ []byte) string { return utf16LE(key) },
		"SEC 1":  sec1,
	} {
		for _, dir := range []string{"srv/", "usr/lib/", "lib/firmware/"} {
			at := dir + strings.ReplaceAll(name, " ", "-")
			files[at] = wrapped(t, key, block.Bytes)
		}
	}
	d.write(files)
	r := d.run(func(o *Options) {
		accept(o)
		o.AcceptSecrets, o.RemoveSecrets = []string{"/srv/", "/usr/", "/lib/"}, true
	})
	wantOutcome(t, r, wire.SecretsFound)
	for at := range files {
		if !slices.ContainsFunc(r.Findings, func(f wire.SecretFinding) bool {
			return f.Path == "/"+at && f.Class == wire.NodeIdentity && (f.Rule == ruleKubeletKey || f.Rule == ruleServingKey)
		}) {
			t.Errorf("/%s is not found", at)
		}
		if !d.paths()[at] {
			t.Errorf("/%s was removed", at)
		}
	}
}

func sec1(t *testing.T, _ string, der []byte) string {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		t.Fatal(err)
	}
	again, err := x509.MarshalECPrivateKey(key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: again}))
}

// Each kind of secret that a node has of its own is found in a copy elsewhere, also by a
// run that follows a refused one.
func TestOwnSecretsElsewhere(t *testing.T) {
	t.Parallel()
	token := "eyJhbGciOiJSUzI1NiIsImtpZCI6InNhbWUifQ." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"x"}`)) + "." + strings.Repeat("Sig-nature_", 30)
	random := strings.Repeat("5f\x00\x91k", 100)
	for _, c := range []struct {
		from, rule string
		content    func(d *donor) string // of a file that has to be found at srv/copy
		own        func(d *donor, content string) string
	}{
		{"var/lib/kubelet/pki/kubelet-server-current.pem", ruleServingKey, func(d *donor) string { return string(keyPEM(newKey(d.t))) }, nil},
		{"var/lib/rancher/k3s/agent/serving-kubelet.key", ruleServingKey, func(d *donor) string { return string(keyPEM(newKey(d.t))) }, nil},
		{"var/lib/rancher/rke2/agent/client-kubelet.key", ruleKubeletKey, func(d *donor) string { return string(keyPEM(newKey(d.t))) }, nil},
		{"etc/ssh/ssh_host_ecdsa_key", ruleSSHHostKey, func(d *donor) string { return string(keyPEM(newKey(d.t))) }, nil},
		{"etc/rancher/node/password", ruleNodePassword, func(*donor) string { return "0123456789abcdef0123456789abcdef" }, nil},
		{"var/lib/waagent/TransportPrivate.pem", ruleAgentKey, func(d *donor) string { return string(keyPEM(newKey(d.t))) }, nil},
		{"var/lib/systemd/credential.secret", ruleRandomSeed, func(*donor) string { return random }, nil},
		{"var/lib/kubelet/pods/uid/volumes/kubernetes.io~projected/kube-api-access-x/token", ruleSAToken, func(*donor) string { return token }, nil},
		{"etc/cni/net.d/10-calico-kubeconfig", ruleSAToken, func(*donor) string { return token }, func(_ *donor, content string) string { return kubeconfigYAML("calico", "token: "+content) }},
		{"etc/kubernetes/kubelet.conf", ruleKubeletKey, func(d *donor) string { return string(keyPEM(newKey(d.t))) }, func(_ *donor, content string) string {
			return kubeconfigYAML("system:node:"+donorName, "client-key-data: "+base64.StdEncoding.EncodeToString([]byte(content)))
		}},
	} {
		t.Run(c.from, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			content := c.content(d)
			own := content
			if c.own != nil {
				own = c.own(d, content)
			}
			d.write(map[string]string{c.from: own, "srv/copy": "copied:\n" + content + "\n"})
			for range 2 {
				r := d.run(accept)
				wantOutcome(t, r, wire.SecretsFound)
				if !slices.ContainsFunc(r.Findings, func(f wire.SecretFinding) bool {
					return f.Path == "/srv/copy" && f.Rule == c.rule && f.Class == wire.NodeIdentity
				}) {
					t.Fatalf("%s is not among %+v", c.rule, r.Findings)
				}
			}
			if err := os.Remove(filepath.Join(d.dir, "srv/copy")); err != nil {
				t.Fatal(err)
			}
			wantOutcome(t, d.run(accept), wire.Generalized)
			if d.paths()[c.from] {
				t.Errorf("/%s is still there", c.from)
			}
		})
	}
}

// Host keys in OpenSSH's format, as ssh-keygen writes them.
func TestOpenSSHKeys(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for kind, key := range map[string]crypto.PrivateKey{"rsa": rsaKey, "ed25519": edKey, "ecdsa": newKey(t)} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			block, err := ssh.MarshalPrivateKey(key, "root@"+donorName)
			if err != nil {
				t.Fatal(err)
			}
			d := newDonor(t)
			at := "etc/ssh/ssh_host_" + kind + "_key"
			d.write(map[string]string{at: string(pem.EncodeToMemory(block)), "usr/lib/x": wrap(base64.StdEncoding.EncodeToString(block.Bytes), "  ", 40), "srv/x": string(keyPEM(key))})
			r := d.run(accept)
			wantOutcome(t, r, wire.SecretsFound)
			if len(r.Findings) != 2 || r.Findings[0].Rule != ruleSSHHostKey || r.Findings[1].Rule != ruleSSHHostKey {
				t.Errorf("findings %+v", r.Findings)
			}
		})
	}
}

// githubToken is a token of that form, with its check digits.
func githubToken(seed string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := crc32.ChecksumIEEE([]byte("seed" + seed))
	var body, check []byte
	for x := uint64(sum)*0x9E3779B97F4A7C15 + 1; len(body) < 30; x = x*6364136223846793005 + 1442695040888963407 {
		body = append(body, digits[(x>>33)%62])
	}
	for x := crc32.ChecksumIEEE(body); len(check) < 6; x /= 62 {
		check = append([]byte{digits[x%62]}, check...)
	}
	return "ghp_" + string(body) + string(check)
}

func findingAt(r wire.GeneralizeReport, path string) wire.SecretFinding {
	for _, f := range r.Findings {
		if f.Path == path && f.Class == wire.OtherSecret {
			return f
		}
	}
	return wire.SecretFinding{}
}

// A secret of the node's users is refused, and accepted by its path or folder alone.
func TestAcceptSecret(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		accepted []string
		want     wire.GeneralizeOutcome
	}{
		"not accepted":         {nil, wire.SecretsFound},
		"by its path":          {[]string{"/home/u/notes"}, wire.Generalized},
		"by its folder":        {[]string{"/home/"}, wire.Generalized},
		"a folder without /":   {[]string{"/home"}, wire.SecretsFound},
		"another of that name": {[]string{"/home/u/note", "/home/u/notes/"}, wire.SecretsFound},
		"no path":              {[]string{"home/u/notes"}, wire.DiskRefused},
		"everything":           {[]string{"/"}, wire.DiskRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			d.write(map[string]string{"home/u/notes": "token " + githubToken("a") + "\n"})
			r := d.run(func(o *Options) { accept(o); o.AcceptSecrets = c.accepted })
			wantOutcome(t, r, c.want)
			f := findingAt(r, "/home/u/notes")
			if c.want != wire.DiskRefused && (f.Rule == "" || f.Accepted != (c.want == wire.Generalized) || f.Removed) {
				t.Errorf("findings %+v", r.Findings)
			}
			if c.want == wire.SecretsFound && (!strings.Contains(r.Message, "--accept-secret") || strings.Contains(r.Message, "--accept-pool")) {
				t.Errorf("message %q", r.Message)
			}
			if !d.paths()["home/u/notes"] {
				t.Error("the file is gone")
			}
		})
	}
}

// What --remove-secrets deletes is gone, listed and counted; what may not go fails the
// scan, with the reason, and then nothing goes.
func TestRemoveSecrets(t *testing.T) {
	t.Parallel()
	remove := func(o *Options) { o.RemoveSecrets = true }
	free := []string{"home/u/notes", "opt/app/.env", "srv/a/b.yaml", "root/.netrc2", "etc/app/secret.conf"}
	fill := func(d *donor) {
		for _, p := range free {
			d.write(map[string]string{p: "token " + githubToken(p) + "\n"})
		}
	}
	t.Run("an inspection", func(t *testing.T) {
		t.Parallel()
		d := newDonor(t)
		fill(d)
		before := d.snapshot()
		r := d.run(func(o *Options) { remove(o); inspecting(o) })
		wantOutcome(t, r, wire.Generalized)
		if r.SecretsRemoved != len(free) || d.snapshot() != before {
			t.Errorf("%d would be removed, want %d and nothing changed", r.SecretsRemoved, len(free))
		}
	})
	t.Run("removed", func(t *testing.T) {
		t.Parallel()
		d := newDonor(t)
		fill(d)
		d.write(map[string]string{"srv/other": "x"})
		r := d.run(remove)
		wantOutcome(t, r, wire.Generalized)
		for _, p := range free {
			if f := findingAt(r, "/"+p); !f.Removed || f.Accepted || d.paths()[p] {
				t.Errorf("/%s: %+v, there %t", p, f, d.paths()[p])
			}
		}
		if r.SecretsRemoved != len(free) || !d.paths()["srv/other"] || !d.paths()["srv/a"] && missing(statOf(d, "srv/a")) {
			t.Errorf("%d removed, want %d and nothing else", r.SecretsRemoved, len(free))
		}
		left := d.snapshot()
		r = d.run(remove)
		wantOutcome(t, r, wire.Generalized)
		if r.SecretsRemoved != 0 || d.snapshot() != left {
			t.Errorf("the second run removed %d", r.SecretsRemoved)
		}
	})
	for name, c := range map[string]struct {
		at, why string
		prepare func(d *donor)
	}{
		"what accounts are": {"etc/shadow", "boot", nil},
		"what mounts": {"etc/fstab", "boot", func(d *donor) {
			d.write(map[string]string{"etc/fstab": "/swapfile none swap sw 0 0\ntoken " + githubToken("x") + "\n"})
		}},
		"a unit":             {"etc/systemd/system/app.service", "boot", nil},
		"a unit in /usr/lib": {"usr/lib/systemd/system/app.service", "boot", nil},
		"the kubelet's":      {"var/lib/kubelet/config.json", "boot", nil},
		"cloud-init's":       {"etc/cloud/cloud.cfg.d/99.cfg", "boot", nil},
		"a file of Debian's": {"etc/app/app.conf", "package", func(d *donor) {
			d.write(map[string]string{"var/lib/dpkg/info/app.list": "/.\n/etc/app\n/etc/app/app.conf\n"})
		}},
		"a file of an RPM": {"opt/app/app.conf", "package", func(d *donor) {
			d.write(map[string]string{"usr/lib/sysimage/rpm/rpmdb.sqlite": strings.Repeat("x", 9000) + "\x00other\x00app.conf\x00y"})
		}},
		"a hard link": {"srv/link", "hard link", func(d *donor) {
			if err := os.Link(filepath.Join(d.dir, "srv/link"), filepath.Join(d.dir, "srv/link2")); err != nil {
				d.t.Fatal(err)
			}
		}},
		"a credential beside it": {"opt/join.yaml", "PoolCredential", func(d *donor) {
			d.write(map[string]string{"opt/join.yaml": githubToken("x") + "\n" + string(keyPEM(newKey(d.t)))})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			fill(d)
			d.write(map[string]string{c.at: "token " + githubToken("x") + "\n"})
			if c.prepare != nil {
				c.prepare(d)
			}
			r := d.run(func(o *Options) { accept(o); remove(o) })
			wantOutcome(t, r, wire.SecretsFound)
			if f := findingAt(r, "/"+c.at); f.Removed || !strings.Contains(f.Detail, "not removed: ") || !strings.Contains(f.Detail, c.why) {
				t.Errorf("%+v, want the reason %q", f, c.why)
			}
			for _, p := range append(free, c.at) {
				if !d.paths()[p] {
					t.Errorf("/%s is gone", p)
				}
			}
			// Accepted by its path, the rest goes and it stays.
			r = d.run(func(o *Options) { accept(o); remove(o); o.AcceptSecrets = []string{"/" + c.at, "/srv/link2"} })
			wantOutcome(t, r, wire.Generalized)
			if !strings.Contains(d.read(c.at), githubToken("x")) || d.paths()[free[0]] || r.SecretsRemoved != len(free) {
				t.Errorf("removed %d, want %d and /%s as it was", r.SecretsRemoved, len(free), c.at)
			}
		})
	}
}

func statOf(d *donor, name string) error {
	_, err := os.Stat(filepath.Join(d.dir, name))
	return err
}

// Image layers are searched for the donor's own secrets; for others only where that is
// asked for, and then nothing is removed from them.
func TestImageLayers(t *testing.T) {
	t.Parallel()
	const blobs = "var/lib/containerd/io.containerd.content.v1.content/blobs"
	const layer = "var/lib/docker/overlay2/abc/diff/"
	prepare := func(t *testing.T) *donor {
		d := newDonor(t).capz()
		d.write(map[string]string{blobs + "/sha256/x": "0123456789", layer + "root/.env": "token " + githubToken("x") + "\n", layer + "usr/share/x": "token " + githubToken("y") + "\n", layer + "etc/node": donorName})
		return d
	}
	stores := func(byForm bool) []wire.ImageStore {
		return []wire.ImageStore{{Path: "/" + blobs, Bytes: 10, ByForm: byForm}, {Path: "/var/lib/docker/overlay2", Bytes: int64(2*(len("token \n")+40) + len(donorName)), ByForm: byForm}}
	}
	t.Run("by default", func(t *testing.T) {
		t.Parallel()
		r := prepare(t).run(nil)
		wantOutcome(t, r, wire.Generalized)
		if !slices.Equal(r.Stores, stores(false)) || len(r.Findings) != 0 {
			t.Errorf("stores %+v, findings %+v", r.Stores, r.Findings)
		}
	})
	t.Run("scanned", func(t *testing.T) {
		t.Parallel()
		d := prepare(t)
		r := d.run(func(o *Options) { o.ScanImages, o.RemoveSecrets = true, true })
		wantOutcome(t, r, wire.SecretsFound)
		if len(r.Findings) != 1 || r.Findings[0].Path != "/"+layer+"root/.env" || !strings.Contains(r.Findings[0].Detail, "part of an image") || !slices.Equal(r.Stores, stores(true)) {
			t.Errorf("stores %+v, findings %+v", r.Stores, r.Findings)
		}
		wantOutcome(t, d.run(func(o *Options) { o.ScanImages, o.AcceptSecrets = true, []string{"/var/lib/docker/"} }), wire.Generalized)
		if !d.paths()[layer+"root/.env"] {
			t.Error("a file of a layer is gone")
		}
	})
	t.Run("the donor's key in a layer", func(t *testing.T) {
		t.Parallel()
		d := prepare(t)
		d.write(map[string]string{layer + "usr/lib/k": d.read("var/lib/kubelet/pki/kubelet.key"), blobs + "/sha256/y": "x" + d.read("var/lib/kubelet/pki/kubelet.key")})
		r := d.run(accept)
		wantOutcome(t, r, wire.SecretsFound)
		if len(r.Findings) != 2 || r.Findings[0].Class != wire.NodeIdentity || r.Findings[1].Class != wire.NodeIdentity {
			t.Errorf("findings %+v", r.Findings)
		}
	})
}

// A thousand secrets of one kind hide none of another, neither in the report nor in
// what fails the scan.
func TestNoKindHidesAnother(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	for i := range maxPerRule + 50 {
		d.write(map[string]string{fmt.Sprintf("etc/many/%04d", i): donorName + "\n"})
	}
	d.write(map[string]string{"srv/z": githubToken("z") + "\n", "srv/zz.key": string(keyPEM(newKey(t)))})
	r := d.run(nil)
	wantOutcome(t, r, wire.SecretsFound)
	rules := map[string]int{}
	for _, f := range r.Findings {
		rules[f.Rule]++
	}
	if len(rules) != 3 || rules[rulePrivateKey] != 1 || len(r.Findings) != defaultFindings || r.More != maxPerRule+52-defaultFindings {
		t.Errorf("rules %v, %d findings and %d more", rules, len(r.Findings), r.More)
	}
	for _, want := range []string{fmt.Sprint(maxPerRule + 52), "/srv/z ", "/srv/zz.key "} {
		if !strings.Contains(r.Message, want) {
			t.Errorf("%q is not in %q", want, r.Message)
		}
	}
	// More than are remembered cannot be removed, and are not forgotten.
	d = newDonor(t)
	for i := range maxPerRule + 1 {
		d.write(map[string]string{fmt.Sprintf("srv/many/%04d", i): githubToken(fmt.Sprint(i)) + "\n"})
	}
	wantOutcome(t, d.run(func(o *Options) { o.RemoveSecrets = true }), wire.SecretsFound)
	wantOutcome(t, d.run(func(o *Options) { o.AcceptSecrets = []string{"/srv/many/"} }), wire.Generalized)
}

package generalize

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/node/tree"
)

// What is read from the disk was written by whoever had the donor: no content
// may end the process or come out as more than it is.

func FuzzCustomData(f *testing.F) {
	f.Add([]byte(ovf("#cloud-config\n")))
	f.Add([]byte("<a><CustomData>!</CustomData></a>"))
	f.Add([]byte("<a><CustomData><b/>eA==</CustomData>"))
	f.Fuzz(func(t *testing.T, data []byte) {
		plain, err := customDataOf(data)
		if err != nil && plain != nil {
			t.Error("data with an error")
		}
		if len(plain) > len(data) {
			t.Error("more came out than went in")
		}
	})
}

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte(kubeconfigYAML("u", "token: abcdef.0123456789abcdef")))
	f.Add([]byte(`{"kind":"Config","users":[{"name":"system:node:x"}]}`))
	f.Add([]byte("users: &a [*a]\nkind: Config"))
	dir := f.TempDir()
	tr, err := tree.Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		kc, err := parseKubeconfig(data)
		if err != nil {
			return
		}
		for _, u := range kc.Users {
			if _, err := u.isNodes(tr, "etc/kubernetes"); err != nil && strings.Contains(err.Error(), dir) {
				t.Errorf("left the tree: %v", err)
			}
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add([]byte(`{"runtimeSettings":[{"handlerSettings":{"protectedSettings":"MIIB","protectedSettingsCertThumbprint":"0123456789ABCDEF0123456789ABCDEF01234567"}}]}`))
	f.Add([]byte(`{"runtimeSettings":null}`))
	tr, err := tree.Open(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if plain, err := decryptSettings(tr, data); err == nil && plain != nil {
			t.Error("something was decrypted without a key")
		}
	})
}

func FuzzCMS(f *testing.F) {
	f.Add([]byte{0x30, 0x80, 0x06, 0x09})
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := openCMS(data, nil, nil); err == nil {
			t.Error("opened without a key")
		}
	})
}

// FuzzScan runs every rule on any content.
func FuzzScan(f *testing.F) {
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte("client-key-data: LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t"))
	f.Add([]byte("token: abcdef.0123456789abcdef\n"))
	f.Add([]byte("clusters: []\nusers: [{user: {client-key-data: x}}]\nkind: Config\n"))
	dir := f.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "etc"), 0o755); err != nil {
		f.Fatal(err)
	}
	tr, err := tree.Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, "etc/x"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{Limits: Limits{}.withDefaults(false)}
		s, err := scan(context.Background(), tr, o, facts{names: []string{"donor"}, nodeKeys: map[[32]byte]string{}}, map[string]bool{}, nil, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		for k, x := range s.findings {
			if k.path != "etc/x" || strings.ContainsAny(x.Detail, "\n\x1b") {
				t.Errorf("finding %+v", x)
			}
		}
	})
}

func FuzzHosts(f *testing.F) {
	f.Add("127.0.1.1 donor.x donor # c")
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "\n") {
			return
		}
		kept, ok := hostsLine(line, facts{names: []string{"donor"}})
		if again, ok2 := hostsLine(kept, facts{names: []string{"donor"}}); ok && (!ok2 || again != kept) {
			t.Errorf("%q becomes %q and then %q", line, kept, again)
		}
	})
}

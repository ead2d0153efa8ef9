package generalize

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// listed is the manifest of a tree, as whoever keeps it reads it.
func (d *donor) listed() wire.Manifest {
	d.t.Helper()
	t, err := tree.Open(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	defer t.Close() // nothing was written
	packed := Manifest(t)
	line, err := json.Marshal(wire.GeneralizeLine{Manifest: packed})
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := wire.ParseGeneralizeLine(line); err != nil {
		d.t.Errorf("the line does not parse: %v", err)
	}
	m, err := wire.ReadManifest(packed)
	if err != nil {
		d.t.Fatal(err)
	}
	return m
}

// pulled makes containerd's database with images by name.
func (d *donor) pulled(root string, images map[string]string) {
	d.t.Helper()
	d.write(map[string]string{root + "/io.containerd.metadata.v1.bolt/x": ""})
	db, err := bolt.Open(filepath.Join(d.dir, root, "io.containerd.metadata.v1.bolt/meta.db"), 0o600, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("v1"))
		for _, name := range []string{"k8s.io", "images"} {
			if err == nil {
				b, err = b.CreateBucketIfNotExists([]byte(name))
			}
		}
		for name, digest := range images {
			i, iErr := b.CreateBucketIfNotExists([]byte(name))
			if err == nil && iErr == nil {
				i, err = i.CreateBucketIfNotExists([]byte("target"))
			}
			if err == nil && iErr == nil {
				err = i.Put([]byte("digest"), []byte(digest))
			}
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		d.t.Fatal(err)
	}
}

// built is a Go program, as far as its build information goes.
func built(flags string) string {
	return "\x7fELF" + strings.Repeat("\x00", 1<<20-9) + "\xff Go buildinf:\x08\x02" + strings.Repeat("\x00", 16) + "\x08go1.23.2\x90\x01path\tx\nmod\tx\t(devel)\nbuild\t-ldflags=\"" + flags + "\"\n"
}

func TestManifest(t *testing.T) {
	const pause = "sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097"
	rpms, err := os.ReadFile("../packages/testdata/rpmdb.sqlite")
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]map[string]string{
		"debian": {
			"etc/os-release":                    "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
			"var/lib/dpkg/status":               "Package: curl\nStatus: install ok installed\nArchitecture: amd64\nVersion: 7.88.1-10\n\nPackage: containerd.io\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.7.24-1\n",
			"usr/local/bin/kubelet":             built("-X 'k8s.io/client-go/pkg/version.gitMajor=1' -X 'k8s.io/component-base/version.gitVersion=v1.31.2'"),
			"boot/vmlinuz-6.1.0-28-cloud-amd64": "x", "usr/lib/modules/6.1.0-28-cloud-amd64/modules.dep": "", "usr/lib/modules/6.1.0-27-cloud-amd64/modules.dep": "",
			"etc/systemd/system/multi-user.target.wants/kubelet.service": "", "etc/systemd/system/timers.target.wants/apt-daily.timer": "",
		},
		"azurelinux": {
			"etc/os-release":                              "ID=azurelinux\nVERSION_ID=\"3.0\"\nPRETTY_NAME=\"Microsoft Azure Linux 3.0\"\n",
			"var/lib/rpm/rpmdb.sqlite":                    string(rpms),
			"usr/lib/modules/6.6.64.2-9.azl3/modules.dep": "",
		},
		"nothing": {"x": ""},
		"flatcar": {"etc/os-release": "ID=flatcar\nVERSION_ID=4081.2.0\nPRETTY_NAME=\"Flatcar Container Linux by Kinvolk 4081.2.0 (Oklo)\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &donor{t: t, dir: t.TempDir()}
			d.write(files)
			if name != "flatcar" && name != "nothing" {
				if err := os.Symlink("usr/lib", filepath.Join(d.dir, "lib")); err != nil {
					t.Fatal(err)
				}
				d.pulled("var/lib/containerd", map[string]string{"registry.k8s.io/pause:3.10": pause, "registry.k8s.io/pause@" + pause: pause, pause: pause})
			}
			m := d.listed()
			m.Bytes = map[string]int64{"/usr": m.Bytes["/usr"]} // bolt's file has no stable size
			got, err := json.MarshalIndent(m, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			at := filepath.Join("testdata", "manifest-"+name+".json")
			if *update {
				if err := os.WriteFile(at, append(got, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(at)
			if err != nil || string(got)+"\n" != string(want) {
				t.Errorf("%v; now:\n%s\nwanted:\n%s", err, got, want)
			}
		})
	}
}

// A disk that was made to be a long manifest gets a short one, which says so.
func TestManifestIsBounded(t *testing.T) {
	d := &donor{t: t, dir: t.TempDir()}
	r := rand.New(rand.NewPCG(1, 2)) // what does not compress
	word := func() string {
		var b strings.Builder
		for range 200 {
			b.WriteByte(byte('!' + r.IntN('~'-'!')))
		}
		return b.String()
	}
	var status strings.Builder
	images := map[string]string{}
	for range 5000 {
		fmt.Fprintf(&status, "Package: %s\nVersion: %s\n\n", word(), word())
		images[word()] = word()
	}
	d.write(map[string]string{"var/lib/dpkg/status": status.String(), "etc/os-release": "ID=debian\n"})
	d.pulled("var/lib/containerd", images)
	for i := range 300 {
		d.write(map[string]string{fmt.Sprintf("boot/vmlinuz-%d-%s", i, strings.ReplaceAll(word(), "/", "_")): ""})
	}
	m := d.listed()
	if m.OS.ID != "debian" || !slices.Contains(m.NotRead, "incomplete: all of it is longer than 64 KiB") {
		t.Errorf("%+v %q", m.OS, m.NotRead)
	}
}

// What containerd has not closed, or what is no database, is named.
func TestManifestOfDamage(t *testing.T) {
	d := &donor{t: t, dir: t.TempDir()}
	d.write(map[string]string{
		"var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db": strings.Repeat("\xed\x0c\xda\xed\xff\x7f", 16<<10),
		"var/lib/docker/image/x":                                    "", "usr/bin/kubelet": "no program", "usr/bin/containerd": built(""), "usr/lib/os-release": "ID=\x1b]0;x\x07\n",
		"var/lib/dpkg/status": "Package: a\x1b[2J\nVersion: 1\n",
	})
	m := d.listed()
	notes := strings.Join(m.NotRead, "\n")
	for _, want := range []string{"images: /var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db cannot be read", "images: those in /var/lib/docker/image are not read",
		"kubelet: /usr/bin/kubelet does not say its version", "containerd: /usr/bin/containerd does not say its version"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not among\n%s", want, notes)
		}
	}
	if m.OS.ID != "?]0;x?" || m.Packages[0].Name != "a?[2J" {
		t.Errorf("%q, %q", m.OS.ID, m.Packages[0].Name)
	}
}

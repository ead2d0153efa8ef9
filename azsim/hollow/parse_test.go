package hollow

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func compressed(t testing.TB, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestParseCustomData(t *testing.T) {
	for name, c := range map[string]struct {
		data  string
		files int
		does  bool
		bad   bool
	}{
		"nothing":    {"", 0, false, false},
		"no-op":      {"#cloud-config\n", 0, false, false},
		"comments":   {"#cloud-config\n# nothing\n", 0, false, false},
		"files":      {"#cloud-config\nwrite_files:\n- {path: /a, content: b}\n", 1, true, false},
		"template":   {"## template: jinja\n#cloud-config\nwrite_files:\n- {path: /a, content: b}\n", 1, true, false},
		"commands":   {"#cloud-config\nruncmd: [reboot]\n", 0, true, false},
		"script":     {"#!/bin/sh\nkubeadm join\n", 0, true, false},
		"compressed": {string(compressed(t, "#cloud-config\nwrite_files:\n- {path: /a, content: b}\n")), 1, true, false},
		"broken":     {"#cloud-config\n{{", 0, false, true},
		"wrong type": {"#cloud-config\nwrite_files: 5\n", 0, true, true},
		"too long":   {strings.Repeat("x", customDataLimit+1), 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			config, does, err := parseCustomData([]byte(c.data))
			if len(config.WriteFiles) != c.files || does != c.does || (err != nil) != c.bad {
				t.Errorf("%d files, does %v, error %v", len(config.WriteFiles), does, err)
			}
		})
	}
}

func FuzzCustomData(f *testing.F) {
	f.Add([]byte("#cloud-config\nwrite_files:\n- {path: /../../a, content: Yg==, encoding: b64, permissions: '0600'}\n- {path: /l/x, content: y, append: true}\n"))
	f.Add(compressed(f, "#cloud-config\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, _, err := parseCustomData(data)
		if err != nil || len(config.WriteFiles) > 16 {
			return
		}
		outer := t.TempDir()
		root := filepath.Join(outer, "tree")
		if err := os.Mkdir(root, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../..", filepath.Join(root, "l")); err != nil {
			t.Fatal(err)
		}
		_ = config.apply(tree(root)) // may fail, must not lead outside
		entries, err := os.ReadDir(outer)
		if err != nil || len(entries) != 1 {
			t.Errorf("written outside of the tree: %v (%v)", entries, err)
		}
	})
}

func TestResolveStaysInside(t *testing.T) {
	root := tree(t.TempDir())
	for name, target := range map[string]string{"/up": "../../..", "/abs": "/etc", "/loop": "/loop", "/a/b": "../../../../etc/x"} {
		if err := root.symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"/up/etc/x": "/etc/x", "/abs/x": "/etc/x", "/a/b": "/etc/x", "/../../y": "/y", "/": "/", "/new/file": "/new/file",
	} {
		got, err := root.resolve(name, true)
		if err != nil || got != filepath.Join(string(root), want) {
			t.Errorf("%s is %s (%v), want %s in the tree", name, got, err, want)
		}
	}
	if got, err := root.resolve("/loop", true); err == nil {
		t.Errorf("a loop is %s", got)
	}
	if got, err := root.resolve("/abs", false); err != nil || got != filepath.Join(string(root), "abs") {
		t.Errorf("the link itself is %s (%v)", got, err)
	}
}

func TestLogOptions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	log, err := newContainerLog(filepath.Join(t.TempDir(), "0.log"), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	out := log.stream("stdout")
	for i, text := range []string{"one\n", "two", " and a half\nthree\n", "four"} {
		now = now.Add(time.Second)
		if _, err := out.Write([]byte(text)); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := log.end(); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"":                                "one\ntwo and a half\nthree\nfour\n",
		"tailLines=2":                     "three\nfour\n",
		"tailLines=0":                     "",
		"limitBytes=5":                    "one\nt",
		"tailLines=1&timestamps=true":     "2026-01-02T03:04:09Z four\n",
		"sinceTime=2026-01-02T03:04:08Z":  "two and a half\nthree\nfour\n",
		"sinceSeconds=1&tailLines=5":      "two and a half\nthree\nfour\n",
		"sinceTime=2027-01-01T00:00:00Z":  "",
		"follow=true&tailLines=1":         "four\n",
		"tailLines=-1":                    "error",
		"limitBytes=0":                    "error",
		"follow=perhaps":                  "error",
		"sinceTime=1&sinceSeconds=2":      "error",
		"sinceTime=yesterday":             "error",
		"sinceSeconds=9999999999999999":   "error",
		"tailLines=99999999999999999999":  "error",
		"previous=false&timestamps=false": "one\ntwo and a half\nthree\nfour\n",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		options, err := parseLogOptions(values, now)
		if err != nil {
			got.WriteString("error")
		} else if err := log.copy(context.Background(), &got, options); err != nil {
			t.Errorf("%s: %v", query, err)
		}
		if got.String() != want {
			t.Errorf("%s gives %q, want %q", query, got.String(), want)
		}
	}
}

func FuzzLogStream(f *testing.F) {
	f.Add([]byte("a\nb"), uint16(3))
	f.Add(bytes.Repeat([]byte("x"), maxLogLine+1), uint16(100))
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		now := time.Unix(1, 0)
		log, err := newContainerLog(filepath.Join(t.TempDir(), "0.log"), func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		out := log.stream("stdout")
		at := min(int(cut), len(data))
		for _, part := range [][]byte{data[:at], data[at:]} {
			if n, err := out.Write(part); err != nil || n != len(part) {
				t.Fatal(n, err)
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		if err := log.end(); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := log.copy(context.Background(), &got, logOptions{tail: -1, limit: -1}); err != nil {
			t.Fatal(err)
		}
		want := data
		if len(data) > 0 && data[len(data)-1] != '\n' {
			want = append(bytes.Clone(data), '\n')
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("wrote %q, read %q", data, got.Bytes())
		}
	})
}

func TestRewriteAndExpand(t *testing.T) {
	mounts := []mount{{"/host/var", "/trees/v"}, {"/host", "/trees/t"}, {"/dev", "/trees/t/dev"}}
	for word, want := range map[string]string{
		"/host": "/trees/t", "/host/etc": "/trees/t/etc", "/hosts": "/hosts", "/host/var/x": "/trees/v/x",
		"--root=/host/etc": "--root=/trees/t/etc", "--root": "--root", "/dev/disk/azure/scsi1/lun0": "/trees/t/dev/disk/azure/scsi1/lun0",
		"a=b=/host": "a=b=/host", "host": "host",
	} {
		if got := rewrite(word, mounts); got != want {
			t.Errorf("%s becomes %s, want %s", word, got, want)
		}
	}
	variables := []variable{{"A", "1"}, {"B", "2"}}
	for text, want := range map[string]string{"$(A)-$(B)": "1-2", "$$(A)": "$(A)", "$(C)": "$(C)", "$A": "$A", "$": "$", "$(": "$(", "a$$": "a$"} {
		if got := expand(text, variables); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

func TestProcessors(t *testing.T) {
	for size, want := range map[string]int64{"Standard_D2s_v5": 2, "Standard_E96as_v5": 96, "Basic_A1": 1, "": 2, "odd": 2} {
		if got := processors(size); got != want {
			t.Errorf("%s has %d processors, want %d", size, got, want)
		}
	}
}

func TestProviderID(t *testing.T) {
	got := providerID("/subscriptions/S/resourceGroups/My-RG/providers/Microsoft.Compute/virtualMachineScaleSets/Pool/virtualMachines/3")
	if want := "azure:///subscriptions/S/resourceGroups/my-rg/providers/Microsoft.Compute/virtualMachineScaleSets/Pool/virtualMachines/3"; got != want {
		t.Error(got)
	}
}

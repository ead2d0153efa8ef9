package machine

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
)

func TestSeed(t *testing.T) {
	dir := t.TempDir()
	c := azsim.Computer{
		VMID: "5b0f6f1c-0000-4000-8000-000000000001", HostName: "pool1000001", Location: "westeurope", Zone: "2",
		CustomData: []byte("#cloud-config\n"), AdminUsername: "azureuser", SSHKeys: []string{"ssh-ed25519 AAAA key"},
	}
	if err := writeSeed(dir, c); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var meta map[string]string
	if err := json.Unmarshal(read("meta-data"), &meta); err != nil {
		t.Fatal(err)
	}
	if meta["instance-id"] != c.VMID || meta["local-hostname"] != c.HostName {
		t.Errorf("meta-data: %v", meta)
	}
	if got := read("user-data"); !bytes.Equal(got, c.CustomData) {
		t.Errorf("user-data: %q", got)
	}
	if got := string(read("vendor-data")); !strings.HasPrefix(got, "#cloud-config\n") || !strings.Contains(got, c.SSHKeys[0]) {
		t.Errorf("vendor-data: %q", got)
	}
}

func TestSeedWithoutAnything(t *testing.T) {
	dir := t.TempDir()
	if err := writeSeed(dir, azsim.Computer{VMID: "1", HostName: "a"}); err != nil {
		t.Fatal(err)
	}
	// cloud-init wants the file even where there is no custom data.
	if b, err := os.ReadFile(filepath.Join(dir, "user-data")); err != nil || len(b) != 0 {
		t.Errorf("user-data: %q, %v", b, err)
	}
}

// decodeEnvironment reads an OVF environment as Azure's agent does: by local
// names, whatever their prefixes.
func decodeEnvironment(t *testing.T, doc []byte) (host string, customData []byte) {
	t.Helper()
	var env struct {
		Section struct {
			Set struct {
				HostName   string
				CustomData string
			} `xml:"LinuxProvisioningConfigurationSet"`
		} `xml:"ProvisioningSection"`
	}
	if err := xml.Unmarshal(doc, &env); err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
	data, err := base64.StdEncoding.DecodeString(env.Section.Set.CustomData)
	if err != nil {
		t.Fatal(err)
	}
	return env.Section.Set.HostName, data
}

func FuzzEnvironmentKeepsCustomData(f *testing.F) {
	f.Add("pool1000001", []byte("#cloud-config\n"))
	f.Add("a", []byte("]]><CustomData>\x00\xff&amp;"))
	f.Fuzz(func(t *testing.T, host string, data []byte) {
		doc, err := ovfEnvironment(azsim.Computer{HostName: host, CustomData: data})
		if err != nil {
			t.Fatal(err)
		}
		_, got := decodeEnvironment(t, doc)
		if !bytes.Equal(got, data) {
			t.Errorf("custom data became %q, was %q", got, data)
		}
	})
}

func TestEnvironmentStaysOnTheDisk(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "var"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root, "var", "lib")); err != nil {
		t.Fatal(err)
	}
	if err := leaveEnvironment(root, azsim.Computer{HostName: "a"}); err == nil {
		t.Error("a link on the disk led the custom data out of it")
	}
	if all, _ := os.ReadDir(outside); len(all) > 0 {
		t.Errorf("written to the host: %v", all)
	}

	clean := t.TempDir()
	if err := leaveEnvironment(clean, azsim.Computer{HostName: "a", CustomData: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(clean, "var/lib/waagent/ovf-env.xml")
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if host, data := decodeEnvironment(t, body); host != "a" || string(data) != "x" {
		t.Errorf("read back %q, %q", host, data)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: custom data is for root only", info.Mode(), err)
	}
}

package recipe_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

func updating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the golden files")
	flag.Parse()
	os.Exit(m.Run())
}

// golden compares content with a file below testdata, or writes it with -update.
func golden(t *testing.T, name string, content []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if updating() {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run the test with -update", err)
	}
	if !bytes.Equal(want, content) {
		t.Errorf("%s differs from what is rendered; run the test with -update and read the difference", file)
	}
}

func number(n int) *int { return &n }

// minimal is what cluster.yaml is without anything optional, with its defaults.
func minimal() *k3s.Cluster {
	c := &k3s.Cluster{
		APIVersion: k3s.APIVersion, Kind: k3s.Kind, Metadata: k3s.Metadata{Name: "demo"},
		Spec: k3s.Spec{
			Location: "westeurope",
			Artifacts: k3s.Artifacts{
				K3s:       k3s.Artifact{URL: "https://artifacts.example/k3s", SHA256: digest('1')},
				Ortet:     k3s.Artifact{URL: "https://artifacts.example/ortet", SHA256: digest('2')},
				OrtetNode: k3s.Artifact{URL: "https://artifacts.example/ortet-node", SHA256: digest('3')},
			},
			Pools:   []k3s.Pool{{Name: "agents", Count: number(1)}},
			Storage: k3s.Storage{Account: "ortetdemo123"},
		},
	}
	c.SetDefaults()
	return c
}

// full sets everything that cluster.yaml has.
func full() *k3s.Cluster {
	c := minimal()
	c.Metadata.Name = "full"
	c.Spec.Groups = k3s.Groups{Storage: "shared", Compute: "full-compute"}
	c.Spec.Storage.Existing = true
	c.Spec.Artifacts.Images = &k3s.Artifact{URL: "file:///srv/artifacts/k3s-airgap-images-amd64.tar.zst", SHA256: digest('4')}
	c.Spec.Access = k3s.Access{
		User: "admin", SSHPort: 2222, SSH: []string{k3s.Own, "2001:db8::/32"}, API: []string{"198.51.100.0/24"}, Ingress: []string{k3s.Cloudflare}, Fail2ban: true,
		Rules: []k3s.AccessRule{
			{Name: "mqtt", Priority: 300, Protocol: "Tcp", Ports: []string{"8883", "9000-9100"}, From: []string{k3s.Own}, To: k3s.ToServers},
			{Name: "game", Priority: 300, Protocol: "Udp", Ports: []string{"7777"}, From: []string{k3s.Cloudflare, "192.0.2.1"}, To: k3s.ToAgents},
		},
	}
	c.Spec.Manifests = []k3s.Manifest{{Name: "app", Artifact: k3s.Artifact{URL: "file:///srv/manifests/app.yaml", SHA256: digest('5')}}}
	c.Spec.Network.Outbound = k3s.Addresses
	c.Spec.Packages = []string{"nfs-common"}
	c.Spec.Options = k3s.Options{PrivateRegistry: true, SwapGB: 2, Scratch: true, TimeZone: "Europe/Lisbon", RebootAfterUpdates: true,
		ClusterAutoscaler: "registry.example/cluster-autoscaler@sha256:" + digest('6')}
	c.Spec.Pools[0].Labels = map[string]string{"tier": "spot"}
	c.Spec.Pools[0].Taints = []string{"spot=true:NoSchedule"}
	c.Spec.Pools[0].EvictionPolicy = k3s.Deallocate
	c.Spec.Pools[0].K3s = k3s.K3s{"kubelet-arg": []any{"max-pods=60"}}
	c.Spec.Server.K3s = k3s.K3s{"disable": []any{"traefik", "servicelb"}, "flannel-backend": "host-gw", "node-taint": []any{"dedicated=server:NoSchedule"}}
	c.Spec.Pools = append(c.Spec.Pools, k3s.Pool{
		Name: "auto", Size: "Standard_D4s_v5", Min: number(1), Max: number(200), Priority: k3s.Regular, Zones: []string{"1", "2"}, ScaleInPolicy: "OldestVM",
		DiskGB: 64, DiskType: "Premium_LRS", Image: k3s.Image{ID: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/gallery/images/agent"},
	}, k3s.Pool{
		Name: "burst", Size: "Standard_D4s_v5", Min: number(0), Max: number(3), ScaleBy: k3s.Pods, Priority: k3s.Spot, EvictionPolicy: k3s.Delete,
		DiskGB: 32, DiskType: "StandardSSD_LRS", Image: c.Spec.Image, Labels: map[string]string{"example.org/work_load": "batch"}, Taints: []string{"example.org/batch=yes:NoSchedule", "alone:NoExecute"},
	})
	c.Spec.Artifacts.ContainerToolkit = []k3s.Artifact{{URL: "file:///srv/toolkit/nvidia-container-toolkit_1.20.2-1_amd64.deb", SHA256: digest('7')}}
	c.Spec.Options.DevicePlugin = "registry.example/k8s-device-plugin@sha256:" + digest('8')
	c.Spec.Pools = append(c.Spec.Pools, k3s.Pool{
		Name: "gpu", Size: "Standard_NC4as_T4_v3", Min: number(0), Max: number(2), ScaleBy: k3s.Pods, Priority: k3s.Regular,
		DiskGB: 64, DiskType: "StandardSSD_LRS", Image: c.Spec.Image, GPU: &k3s.GPU{},
	})
	c.SetDefaults()
	return c
}

func digest(c byte) string { return string(bytes.Repeat([]byte{c}, 64)) }

func sha256Of(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

const sshKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPublicKeyOfTheTestWhichIsNoSecret demo"

func facts() recipe.Facts {
	return recipe.Facts{SSHPublicKey: sshKey, OwnAddresses: []string{"203.0.113.7"}, Subscription: "00000000-0000-4000-8000-000000000001"}
}

func render(t *testing.T, c *k3s.Cluster, f recipe.Facts) *recipe.Documents {
	t.Helper()
	d, err := recipe.Render(c, f)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestGolden(t *testing.T) {
	for name, c := range map[string]*k3s.Cluster{"minimal": minimal(), "full": full()} {
		d := render(t, c, facts())
		for part, one := range map[string]recipe.Deployment{"storage": d.Storage, "compute": d.Compute} {
			abbreviate(one.Template, d)
			text, err := json.MarshalIndent(map[string]any{"group": one.Group, "template": one.Template, "parameters": one.Parameters}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+"/"+part+".json", append(text, '\n'))
		}
		for machine, document := range d.CloudInit {
			golden(t, name+"/"+machine+".txt", readable(t, document))
		}
		var settings any
		if err := json.Unmarshal(d.Settings, &settings); err != nil {
			t.Fatal(err)
		}
		text, err := json.MarshalIndent(settings, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+"/settings.json", append(text, '\n'))
	}
}

// abbreviate puts a name in place of each customData, which has golden files of its own,
// and of its digest.
func abbreviate(value any, d *recipe.Documents) {
	switch v := value.(type) {
	case map[string]any:
		for key, below := range v {
			if below == d.ServerRecipe {
				v[key] = "(recipe)"
			}
			if below == base64.StdEncoding.EncodeToString(d.Settings) {
				v[key] = "(settings)"
			}
			for name, document := range d.CloudInit {
				if key == "customData" && below == base64.StdEncoding.EncodeToString(document) {
					v[key] = "(customData of " + name + ")"
				}
			}
			abbreviate(below, d)
		}
	case []any:
		for _, below := range v {
			abbreviate(below, d)
		}
	}
}

// A cloudConfig is what cloud-init reads of a document.
type cloudConfig struct {
	WriteFiles  []writtenFile `json:"write_files"`
	RunCommands [][]string    `json:"runcmd"`
}

type writtenFile struct {
	Path        string `json:"path"`
	Permissions string `json:"permissions"`
	Encoding    string `json:"encoding"`
	Content     string `json:"content"`
}

// parse reads a document and decodes its files.
func parse(t *testing.T, document []byte) cloudConfig {
	t.Helper()
	var c cloudConfig
	if err := yaml.Unmarshal(document, &c); err != nil {
		t.Fatal(err)
	}
	for i, f := range c.WriteFiles {
		if f.Encoding != "gz+b64" {
			continue
		}
		packed, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		c.WriteFiles[i].Content = string(content)
	}
	return c
}

// readable shows a document with its files decoded, without the long ones that are in
// the repository as they are.
func readable(t *testing.T, document []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, f := range parse(t, document).WriteFiles {
		content := f.Content
		if strings.HasSuffix(f.Path, "/boot.py") || strings.HasSuffix(f.Path, "/ortet-admission.yaml") {
			content = "(a file of this package)\n"
		}
		fmt.Fprintf(&b, "==> %s %s\n%s\n", f.Path, f.Permissions, content)
	}
	rest, _, _ := bytes.Cut(document, []byte("write_files:\n"))
	fmt.Fprintf(&b, "==> the rest\n%s", rest)
	return b.Bytes()
}

// An agent of an image that has nothing of Ortet's reports its boot. Its units run the program that
// ortet-boot fetches, so they wait for that.
func TestAgentsReportTheirBoot(t *testing.T) {
	c := parse(t, render(t, minimal(), facts()).CloudInit["agents"])
	files := map[string]string{}
	for _, f := range c.WriteFiles {
		files[f.Path] = f.Content
	}
	commands := map[string][]string{}
	for _, command := range c.RunCommands {
		commands[strings.Join(command[:min(2, len(command))], " ")] = command
	}
	const program = "/usr/local/bin/ortet-node"
	if !strings.Contains(files["/etc/ortet/boot.json"], `"path": "`+program+`"`) {
		t.Errorf("ortet-boot fetches no %s", program)
	}
	for unit, command := range map[string]string{"ortet-wait.service": "wait", "ortet-report.service": "report"} {
		if !strings.Contains(files["/etc/systemd/system/"+unit], "\nExecStart="+program+" "+command+" ") {
			t.Errorf("%s does not run %s %s:\n%s", unit, program, command, files["/etc/systemd/system/"+unit])
		}
		if !slices.ContainsFunc(strings.Split(files["/etc/systemd/system/ortet-boot.service"], "\n"), func(line string) bool {
			return strings.HasPrefix(line, "Before=") && slices.Contains(strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '=' }), unit)
		}) {
			t.Errorf("%s does not wait for ortet-boot.service", unit)
		}
		for _, what := range []string{"systemctl enable", "systemctl start"} {
			if !slices.Contains(commands[what], unit) {
				t.Errorf("cloud-init's commands are %v, without %s %s", c.RunCommands, what, unit)
			}
		}
	}
}

func TestRenderIsDeterministic(t *testing.T) {
	first, err := json.Marshal(render(t, full(), facts()))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := json.Marshal(render(t, full(), facts()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, again) {
			t.Fatal("the same cluster was rendered in two ways")
		}
	}
}

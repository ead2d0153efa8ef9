package recipe

import (
	"bytes"
	"compress/gzip"
	_ "embed" // programs and the manifests
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/deploy/systemd"
	"github.com/ortet/ortet/internal/k3s"
)

// Azure's limits, in bytes before base64 (REST API, OSProfile; "User Data for Azure Virtual
// Machine").
const (
	maxCustomData = 65535
	maxUserData   = 65536
)

//go:embed boot.py
var bootProgram string

//go:embed state.py
var stateProgram string

//go:embed tailnet.py
var tailnetProgram string

//go:embed gpu.py
var gpuProgram string

// admissionManifest is the chart's policies and RBAC of admission, with the server's
// Node exempt; a test with helm compares them, and writes the file with -update.
//
//go:embed manifests/admission.yaml
var admissionManifest string

// autoscalerManifest is cluster-autoscaler with the RBAC that it documents for Azure.
//
//go:embed manifests/autoscaler.yaml
var autoscalerManifest string

// devicePluginManifest is NVIDIA's device plugin, as its deployments/static has it.
//
//go:embed manifests/device-plugin.yaml
var devicePluginManifest string

// config is a cloud-config document; keys are sorted in YAML.
type config struct {
	WriteFiles    []file     `json:"write_files"`
	RunCommands   [][]string `json:"runcmd"`
	TimeZone      string     `json:"timezone,omitempty"`
	UpdatePackage bool       `json:"package_update,omitempty"`
	Upgrade       bool       `json:"package_upgrade,omitempty"`
	Reboot        bool       `json:"package_reboot_if_required,omitempty"`
}

type file struct {
	Path        string `json:"path"`
	Permissions string `json:"permissions"`
	Encoding    string `json:"encoding,omitempty"`
	Content     string `json:"content"`
}

// An identity is what a machine is for as long as it exists: the beginning of
// /etc/ortet/boot.json, which boot.py reads.
type identity struct {
	Role          string            `json:"role"`
	Cluster       string            `json:"cluster"`
	ServerName    string            `json:"serverName"`
	ServerAddress string            `json:"serverAddress"`
	StorageGroup  string            `json:"storageGroup"`
	Account       string            `json:"account"`
	Share         string            `json:"share"`
	Identity      string            `json:"identity"`
	User          string            `json:"user"`
	Tags          map[string]string `json:"tags"`
}

// settings are what a machine runs by: an agent's are in boot.json too, the server's are
// its VM's userData, so that they change while it runs. Every process of the server can
// read them: they hold no secret.
type settings struct {
	Packages      map[string][]string `json:"packages"`                // by a program that shows that they are there
	ExtraPackages []string            `json:"extraPackages,omitempty"` // those of cluster.yaml
	Artifacts     []artifact          `json:"artifacts"`
	SwapGB        int                 `json:"swapGB,omitempty"`
	Scratch       bool                `json:"scratch,omitempty"`
	Files         []settingsFile      `json:"files,omitempty"` // a file that leaves the list is deleted

	// The server's.
	Pods     string         `json:"pods,omitempty"`
	Services string         `json:"services,omitempty"`
	TimeZone string         `json:"timeZone,omitempty"`
	Tailnet  *k3s.Tailscale `json:"tailnet,omitempty"`
	// Manifests are those of cluster.yaml, in k3s's folder of manifests.
	Manifests []artifact `json:"manifests,omitempty"`

	// An agent's: those of join.json.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	NodeTaints []string          `json:"nodeTaints,omitempty"`
	Registries string            `json:"registries,omitempty"`
	Driver     string            `json:"driver,omitempty"`  // of its GPUs, as GPU.Driver of its pool
	Toolkit    []artifact        `json:"toolkit,omitempty"` // Debian packages
}

// A settingsFile is a file and the units that read it: they are restarted when it changes,
// if they run.
type settingsFile struct {
	Path    string   `json:"path"`
	Mode    string   `json:"mode"`
	Content string   `json:"content"`
	Restart []string `json:"restart,omitempty"`
}

type artifact struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	SHA256 string `json:"sha256"`
	Path   string `json:"path"`
	Mode   string `json:"mode"`
}

const (
	unitDirectory = "/etc/systemd/system/"
	imagesFolder  = "/var/lib/rancher/k3s/agent/images/"
	toolkitFolder = "/var/lib/ortet/toolkit/"
	registryPort  = "5000"
	manifests     = "/var/lib/rancher/k3s/server/manifests/"
)

// serverDocument is constant for a version of Ortet and what its VM is.
func (r *renderer) serverDocument() ([]byte, error) {
	files := []file{
		// boot.py copies it to k3s's folder, which is on the state disk.
		r.text("/usr/local/lib/ortet/manifests/ortet-admission.yaml", "0600", admissionManifest),
		r.text("/usr/local/lib/ortet/tailnet.py", "0644", tailnetProgram),
		r.text("/etc/bash_completion.d/kubectl", "0644", "command -v kubectl >/dev/null && eval \"$(kubectl completion bash 2>/dev/null)\"\n"),
	}
	i := r.identity("server", ServerIdentity)
	i.Tags["tailnet"], i.Tags["tailnetName"] = TagTailnet, TagTailnetName
	i.Tags["tailnetAddress"], i.Tags["tailnetExpiry"] = TagTailnetAddress, TagTailnetExpiry
	return r.document("server", i, files, []string{
		"ortet-metadata-guard.service", "ortet-boot.service", "k3s.service", "ortet-admission.service", "ortet-publish.service",
	}, "ortet-tailscaled.service")
}

// serverSettings are the server's userData.
func (r *renderer) serverSettings() ([]byte, error) {
	s := r.settings(r.Spec.Server.K3s, "k3s.service")
	n, o, a := r.Spec.Network, r.Spec.Options, r.Spec.Access
	s.Pods, s.Services, s.TimeZone = n.Pods, n.Services, o.TimeZone
	s.Artifacts = append(s.Artifacts, program("ortet", r.Spec.Artifacts.Ortet))
	for _, m := range r.Spec.Manifests {
		s.Manifests = append(s.Manifests, artifact{"manifest " + m.Name, m.URL, m.SHA256, manifests + "ortet-" + m.Name + ".yaml", "0600"})
	}
	if a.Tailscale != nil {
		t := r.Spec.Artifacts.Tailscale
		s.Tailnet = a.Tailscale
		s.Artifacts = append(s.Artifacts, artifact{"tailscale", t.URL, strings.ToLower(t.SHA256), "/usr/local/lib/ortet/tailscale.tgz", "0600"})
	}
	if o.ClusterAutoscaler != "" {
		identity := "/subscriptions/" + r.Subscription + "/resourceGroups/" + r.Spec.Groups.Storage + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/" + AutoscalerIdentity
		provision := "15m0s" // the default
		waits := func(p k3s.Pool) bool { return p.ScaleBy == k3s.Pods && p.GPU != nil && p.GPU.Driver == k3s.Extension }
		if slices.ContainsFunc(r.Spec.Pools, waits) {
			provision = "45m0s" // as long as an agent waits for its driver
		}
		s.Files = append(s.Files, settingsFile{manifests + "cluster-autoscaler.yaml", "0600",
			strings.NewReplacer("{PROVISION}", provision, "{CLUSTER}", r.Metadata.Name, "{IMAGE}", o.ClusterAutoscaler, "{IDENTITY}", identity).Replace(uncommented(autoscalerManifest)), nil})
	}
	if o.DevicePlugin != "" {
		s.Files = append(s.Files, settingsFile{manifests + "nvidia-device-plugin.yaml", "0600",
			strings.ReplaceAll(uncommented(devicePluginManifest), "{IMAGE}", o.DevicePlugin), nil})
	}
	if o.PrivateRegistry {
		s.Files = append(s.Files, settingsFile{"/etc/rancher/k3s/registries.yaml", "0600", r.registries(), []string{"k3s.service"}})
	}
	if a.Fail2ban {
		s.Packages["fail2ban-client"] = []string{"fail2ban", "python3-systemd"}
		// Debian 12 has nftables and no iptables, which is fail2ban's default.
		s.Files = append(s.Files, settingsFile{"/etc/fail2ban/jail.d/50-ortet.conf", "0644",
			fmt.Sprintf("[DEFAULT]\nbanaction = nftables-multiport\n[sshd]\nenabled = true\nbackend = systemd\nport = %d\n", a.SSHPort), []string{"fail2ban.service"}})
	}
	if a.SSHPort != 22 {
		s.Files = append(s.Files, settingsFile{sshdFile, "0644", sshdPort(a.SSHPort), sshUnits})
	}
	if f := r.Facts; f.ServerKey != "" && k3s.Fingerprint(f.ServerKey) != k3s.Fingerprint(f.SSHPublicKey) {
		// Instead of the user's own file, which has the key that the VM was made with.
		s.Files = append(s.Files, settingsFile{KeyFile, "0644", strings.TrimSpace(f.SSHPublicKey) + "\n", nil},
			settingsFile{"/etc/ssh/sshd_config.d/40-ortet-key.conf", "0644", "Match User " + a.User + "\n\tAuthorizedKeysFile " + KeyFile + "\n", sshUnits})
	}
	text, err := json.Marshal(struct {
		Cluster string `json:"cluster"` // whose userData it is
		settings
	}{r.Metadata.Name, s})
	if err != nil {
		return nil, fmt.Errorf("encode the server's settings: %w", err)
	}
	if len(text) > maxUserData {
		return nil, fmt.Errorf("render the server's userData: %d bytes exceed Azure's limit of %d; use shorter URLs, or fewer of them", len(text), maxUserData)
	}
	return text, nil
}

// KeyFile has the operator's public key on a server that was made with another.
const KeyFile = "/etc/ssh/ortet_authorized_keys"

const sshdFile = "/etc/ssh/sshd_config.d/50-ortet.conf"

// sshUnits are those that listen: Ubuntu 24.04 does so by the socket.
var sshUnits = []string{"ssh.socket", "ssh.service"}

func sshdPort(port int) string { return "Port " + strconv.Itoa(port) + "\n" }

func (r *renderer) agentDocument(p *k3s.Pool) ([]byte, error) {
	s := r.settings(p.K3s)
	s.NodeLabels, s.NodeTaints = p.Labels, p.Taints
	s.Scratch = r.Spec.Options.Scratch
	if r.Spec.Options.PrivateRegistry {
		s.Registries = r.registries()
	}
	s.Artifacts = append(s.Artifacts, program("ortet-node", r.Spec.Artifacts.OrtetNode))
	var files []file
	if p.GPU != nil {
		s.Driver, files = p.GPU.Driver, []file{r.text("/usr/local/lib/ortet/gpu.py", "0644", gpuProgram)}
		if s.Driver != k3s.InImage {
			for _, a := range r.Spec.Artifacts.ContainerToolkit {
				name := k3s.FileOf(a.URL)
				s.Toolkit = append(s.Toolkit, artifact{name, a.URL, strings.ToLower(a.SHA256), toolkitFolder + name, "0644"})
			}
		}
	}
	return r.document("agent", struct {
		identity
		settings
	}{r.identity("agent", AgentIdentity), s}, files, []string{
		"ortet-metadata-guard.service", "ortet-boot.service", "ortet-join.service", "k3s-agent.service", "ortet-events.service", "ortet-share.timer",
		"ortet-wait.service", "ortet-report.service",
	}, "k3s-agent.service.d/20-ortet.conf", "ortet-share.service")
}

func (r *renderer) identity(role, name string) identity {
	spec := &r.Spec
	return identity{
		Role: role, Cluster: r.Metadata.Name, ServerName: ServerName, ServerAddress: r.ServerAddress,
		StorageGroup: spec.Groups.Storage, Account: spec.Storage.Account, Share: spec.Storage.Mount, Identity: name, User: spec.Access.User,
		Tags: map[string]string{"cluster": TagCluster, "caHash": TagCAHash, "sshHostKey": TagSSHHostKey, "boot": TagBoot, "settings": TagSettings, "k3s": TagK3s, "datastore": TagDatastore, "certificates": TagCerts},
	}
}

// settings are those that all machines have, with options of k3s that these units read.
func (r *renderer) settings(k3sOptions k3s.K3s, units ...string) settings {
	spec := &r.Spec
	s := settings{
		SwapGB:        spec.Options.SwapGB,
		Packages:      map[string][]string{"mount.cifs": {"cifs-utils"}, "nft": {"nftables"}},
		ExtraPackages: spec.Packages,
		Artifacts:     []artifact{program("k3s", spec.Artifacts.K3s)},
	}
	if i := spec.Artifacts.Images; i != nil {
		s.Artifacts = append(s.Artifacts, artifact{"images", i.URL, strings.ToLower(i.SHA256), imagesFolder + imagesName(i.URL), "0644"})
	}
	if len(k3sOptions) > 0 {
		text, _ := yaml.Marshal(k3sOptions) // as it came out of YAML
		s.Files = []settingsFile{{"/etc/rancher/k3s/config.yaml.d/50-cluster.yaml", "0600", string(text), units}}
	}
	return s
}

func program(name string, a k3s.Artifact) artifact {
	return artifact{name, a.URL, strings.ToLower(a.SHA256), "/usr/local/bin/" + name, "0755"}
}

// imagesName keeps the ending of a URL's file: k3s goes by it.
func imagesName(url string) string {
	url, _, _ = strings.Cut(url, "?")
	for _, ending := range []string{".tar.gz", ".tar.zst", ".tgz", ".tar.lz4", ".tar.bz2"} {
		if strings.HasSuffix(url, ending) {
			return "ortet" + ending
		}
	}
	return "ortet.tar"
}

// registries has k3s pull from the registry on the server, whose traffic stays in the
// virtual network.
func (r *renderer) registries() string {
	return fmt.Sprintf("mirrors:\n  \"%[1]s:%[3]s\":\n    endpoint: [\"http://%[2]s:%[3]s\"]\n  \"%[2]s:%[3]s\":\n    endpoint: [\"http://%[2]s:%[3]s\"]\n",
		ServerName, r.ServerAddress, registryPort)
}

// document makes the cloud-config document that writes files and enables units; those of
// dropIns are written alone.
// boot is boot.json.
func (r *renderer) document(role string, boot any, files []file, units []string, dropIns ...string) ([]byte, error) {
	text, err := json.MarshalIndent(boot, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode boot.json: %w", err)
	}
	c := config{WriteFiles: []file{
		r.text("/etc/ortet/boot.json", "0600", string(text)+"\n"),
		r.text("/usr/local/lib/ortet/boot.py", "0755", bootProgram),
		r.text("/usr/local/lib/ortet/state.py", "0644", stateProgram),
	}}
	for _, name := range append(append([]string{}, units...), dropIns...) {
		unit, err := shipped(name)
		if err != nil {
			return nil, err
		}
		c.WriteFiles = append(c.WriteFiles, r.text(unitDirectory+name, "0644", unit))
	}
	guard, err := shipped("ortet-metadata-guard.nft")
	if err != nil {
		return nil, err
	}
	c.WriteFiles = append(c.WriteFiles, r.text("/etc/ortet/ortet-metadata-guard.nft", "0644", guard))
	c.WriteFiles = append(c.WriteFiles, files...)
	o := r.Spec.Options
	c.UpdatePackage, c.Upgrade, c.Reboot = o.RebootAfterUpdates, o.RebootAfterUpdates, o.RebootAfterUpdates
	// Waiting happens in units: until these commands return, Azure says "Creating".
	c.RunCommands = [][]string{{"systemctl", "daemon-reload"}}
	if role == "agent" {
		c.TimeZone = o.TimeZone
		if port := r.Spec.Access.SSHPort; port != 22 {
			c.WriteFiles = append(c.WriteFiles, r.text(sshdFile, "0644", sshdPort(port)))
			c.RunCommands = append(c.RunCommands, append([]string{"systemctl", "try-restart", "--no-block"}, sshUnits...))
		}
	}
	// boot.py starts the guard, once nft is there.
	start := units[1:]
	c.RunCommands = append(c.RunCommands,
		append([]string{"systemctl", "enable"}, units...),
		append([]string{"systemctl", "start", "--no-block"}, start...))
	body, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode cloud-config: %w", err)
	}
	all := append([]byte("#cloud-config\n"), body...)
	if len(all) > maxCustomData {
		return nil, fmt.Errorf("render customData of role %s: %d bytes exceed Azure's limit of %d; use fewer labels and taints, or shorter URLs", role, len(all), maxCustomData)
	}
	return all, nil
}

// shipped is a file of deploy/systemd without its comments.
func shipped(name string) (string, error) {
	content, err := systemd.Files.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read unit %s: %w", path.Base(name), err)
	}
	return uncommented(string(content)), nil
}

// uncommented drops whole lines of comment.
func uncommented(s string) string {
	var kept strings.Builder
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// text is a file as text, or compressed if that is shorter.
func (r *renderer) text(name, permissions, content string) file {
	f, some := r.packed[content] // machines share most files
	if !some {
		var b bytes.Buffer
		if r.zip == nil {
			r.zip, _ = gzip.NewWriterLevel(nil, gzip.BestCompression) // the level is valid
		}
		r.zip.Reset(&b)
		_, _ = r.zip.Write([]byte(content)) // a buffer takes everything
		_ = r.zip.Close()
		f = file{Content: content}
		if packed := base64.StdEncoding.EncodeToString(b.Bytes()); len(packed) < len(content) {
			f = file{Encoding: "gz+b64", Content: packed}
		}
		r.packed[content] = f
	}
	f.Path, f.Permissions = name, permissions
	return f
}

package recipe

import (
	"bytes"
	"compress/gzip"
	_ "embed" // boot.py and the manifests
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/deploy/systemd"
	"github.com/ortet/ortet/internal/k3s"
)

// maxCustomData is Azure's limit, in bytes before base64 (REST API, OSProfile).
const maxCustomData = 65535

//go:embed boot.py
var bootProgram string

// admissionManifest is the chart's policies and RBAC of admission, with the server's
// Node exempt; a test with helm compares them, and writes the file with -update.
//
//go:embed manifests/admission.yaml
var admissionManifest string

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

// settings are /etc/ortet/boot.json, which boot.py reads.
type settings struct {
	Role          string              `json:"role"`
	Cluster       string              `json:"cluster"`
	ServerName    string              `json:"serverName"`
	ServerAddress string              `json:"serverAddress"`
	StorageGroup  string              `json:"storageGroup"`
	Account       string              `json:"account"`
	Share         string              `json:"share"`
	Identity      string              `json:"identity"`
	User          string              `json:"user"`
	Tags          map[string]string   `json:"tags"`
	Packages      map[string][]string `json:"packages"` // by a program that shows that they are there
	Artifacts     []artifact          `json:"artifacts"`
	SwapGB        int                 `json:"swapGB,omitempty"`
	Scratch       bool                `json:"scratch,omitempty"`

	// The server's.
	Pods     string `json:"pods,omitempty"`
	Services string `json:"services,omitempty"`

	// An agent's: those of join.json.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	NodeTaints []string          `json:"nodeTaints,omitempty"`
	Registries string            `json:"registries,omitempty"`
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
	registryPort  = "5000"
	manifests     = "/var/lib/rancher/k3s/server/manifests/"
)

func (r *renderer) serverDocument() ([]byte, error) {
	s := r.settings("server", ServerIdentity)
	n, o := r.Spec.Network, r.Spec.Options
	s.Pods, s.Services = n.Pods, n.Services
	s.Artifacts = append(s.Artifacts, program("ortet", r.Spec.Artifacts.Ortet))
	files := []file{
		r.text(manifests+"ortet-admission.yaml", "0600", admissionManifest),
		r.text("/etc/bash_completion.d/kubectl", "0644", "command -v kubectl >/dev/null && eval \"$(kubectl completion bash 2>/dev/null)\"\n"),
	}
	if o.PrivateRegistry {
		files = append(files, r.text("/etc/rancher/k3s/registries.yaml", "0600", r.registries()))
	}
	if a := r.Spec.Access; a.Fail2ban {
		s.Packages["fail2ban-client"] = []string{"fail2ban", "python3-systemd"}
		files = append(files, r.text("/etc/fail2ban/jail.d/50-ortet.conf", "0644",
			fmt.Sprintf("[sshd]\nenabled = true\nbackend = systemd\nport = %d\n", a.SSHPort)))
	}
	return r.document(s, files, []string{
		"ortet-metadata-guard.service", "ortet-boot.service", "k3s.service", "ortet-admission.service", "ortet-publish.service",
	})
}

func (r *renderer) agentDocument(p *k3s.Pool) ([]byte, error) {
	s := r.settings("agent", AgentIdentity)
	s.NodeLabels, s.NodeTaints = p.Labels, p.Taints
	s.Scratch = r.Spec.Options.Scratch
	if r.Spec.Options.PrivateRegistry {
		s.Registries = r.registries()
	}
	s.Artifacts = append(s.Artifacts, program("ortet-node", r.Spec.Artifacts.OrtetNode))
	return r.document(s, nil, []string{
		"ortet-metadata-guard.service", "ortet-boot.service", "ortet-join.service", "k3s-agent.service", "ortet-events.service",
	}, "k3s-agent.service.d/20-ortet.conf")
}

// settings are those that all machines have.
func (r *renderer) settings(role, identity string) *settings {
	spec := &r.Spec
	s := &settings{
		Role: role, Cluster: r.Metadata.Name, ServerName: ServerName, ServerAddress: r.ServerAddress,
		StorageGroup: spec.Groups.Storage, Account: spec.Storage.Account, Share: spec.Storage.Mount,
		Identity: identity, User: spec.Access.User, SwapGB: spec.Options.SwapGB,
		Tags:      map[string]string{"cluster": TagCluster, "caHash": TagCAHash, "sshHostKey": TagSSHHostKey, "boot": TagBoot},
		Packages:  map[string][]string{"mount.cifs": {"cifs-utils"}, "nft": {"nftables"}},
		Artifacts: []artifact{program("k3s", spec.Artifacts.K3s)},
	}
	if i := spec.Artifacts.Images; i != nil {
		s.Artifacts = append(s.Artifacts, artifact{"images", i.URL, strings.ToLower(i.SHA256), imagesFolder + imagesName(i.URL), "0644"})
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

// document makes the cloud-config document that writes files and enables units.
func (r *renderer) document(s *settings, files []file, units []string, dropIns ...string) ([]byte, error) {
	boot, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode boot.json: %w", err)
	}
	c := config{WriteFiles: []file{
		r.text("/etc/ortet/boot.json", "0600", string(boot)+"\n"),
		r.text("/usr/local/lib/ortet/boot.py", "0755", bootProgram),
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
	c.TimeZone = o.TimeZone
	c.UpdatePackage, c.Upgrade, c.Reboot = o.RebootAfterUpdates, o.RebootAfterUpdates, o.RebootAfterUpdates
	// Waiting happens in units: until these commands return, Azure says "Creating".
	c.RunCommands = [][]string{{"systemctl", "daemon-reload"}}
	if port := r.Spec.Access.SSHPort; port != 22 {
		c.WriteFiles = append(c.WriteFiles, r.text("/etc/ssh/sshd_config.d/50-ortet.conf", "0644", "Port "+strconv.Itoa(port)+"\n"))
		// Ubuntu 24.04 listens by the socket.
		c.RunCommands = append(c.RunCommands, []string{"systemctl", "try-restart", "--no-block", "ssh.socket", "ssh.service"})
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
		return nil, fmt.Errorf("render customData of role %s: %d bytes exceed Azure's limit of %d; use fewer labels and taints, or shorter URLs", s.Role, len(all), maxCustomData)
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

// Package serverboot plays the part that boot.py has on the server of a k3s cluster, where
// no machine runs it: it reads the VM as Azure has it, and writes the tags for which ortet
// cluster waits.
package serverboot

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

const computeVersion, networkVersion, tagsVersion = "2024-07-01", "2024-05-01", "2021-04-01"

// A Subscription is what clusters are in.
type Subscription struct {
	ARM azure.Resources
	ID  string
}

// A Server is a cluster's server VM.
type Server struct {
	ID      string
	Cluster string // its name
	Running bool
	// Of the public address; "" without one.
	Address, FQDN string

	User           string
	AuthorizedKeys []string // lines
	SSHPort        int
	K3s            string // version by the URL of the artifact, "v1.36.4+k3s1"; "" if it has none

	arm      azure.Resources
	tailnet  string // its host name there; "" is none
	settings []byte // of its VM
	tags     map[string]string
}

// A virtualMachine is what is read of one.
type virtualMachine struct {
	ID         fleet.ResourceID  `json:"id"`
	Tags       map[string]string `json:"tags"`
	Properties struct {
		UserData  []byte `json:"userData"`
		OSProfile struct {
			AdminUsername      string `json:"adminUsername"`
			LinuxConfiguration struct {
				SSH struct {
					PublicKeys []struct{ KeyData string } `json:"publicKeys"`
				} `json:"ssh"`
			} `json:"linuxConfiguration"`
		} `json:"osProfile"`
		InstanceView struct {
			Statuses []struct{ Code string } `json:"statuses"`
		} `json:"instanceView"`
	} `json:"properties"`
}

// Servers reads the servers of all clusters.
func (u Subscription) Servers(ctx context.Context) (all []Server, err error) {
	var found []virtualMachine
	err = u.ARM.List(ctx, fleet.ResourceID("/subscriptions/"+u.ID+"/providers/Microsoft.Compute/virtualMachines"), computeVersion, func(raw json.RawMessage) error {
		var vm virtualMachine
		err := json.Unmarshal(raw, &vm)
		if vm.Tags[recipe.TagRole] == recipe.ServerName {
			found = append(found, vm)
		}
		return err
	})
	for _, vm := range found {
		s, err := read(ctx, u.ARM, vm.ID)
		if fleet.Is(err, fleet.KindNotFound) { // deleted meanwhile
			continue
		}
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, err
}

// read reads a server.
func read(ctx context.Context, arm azure.Resources, id fleet.ResourceID) (s Server, err error) {
	var vm virtualMachine
	if err := arm.Get(ctx, id, computeVersion, &vm, "$expand", "instanceView"); err != nil {
		return s, err
	}
	s = Server{arm: arm, ID: string(id), Cluster: vm.Tags[recipe.TagCluster], User: vm.Properties.OSProfile.AdminUsername}
	for _, status := range vm.Properties.InstanceView.Statuses {
		s.Running = s.Running || status.Code == "PowerState/running"
	}
	if err := arm.Get(ctx, id, computeVersion, &vm, "$expand", "userData"); err != nil {
		return s, err
	}
	s.settings, s.tags = vm.Properties.UserData, vm.Tags
	for _, key := range vm.Properties.OSProfile.LinuxConfiguration.SSH.PublicKeys {
		s.AuthorizedKeys = append(s.AuthorizedKeys, key.KeyData)
	}
	s.apply()
	var public struct {
		Properties struct {
			IPAddress   string
			DNSSettings struct{ FQDN string }
		}
	}
	err = arm.Get(ctx, id.Group()+fleet.ResourceID("/providers/Microsoft.Network/publicIPAddresses/"+recipe.ServerName), networkVersion, &public)
	s.Address, s.FQDN = public.Properties.IPAddress, public.Properties.DNSSettings.FQDN
	return s, fleet.IgnoreNotFound(err)
}

var (
	sshPort    = regexp.MustCompile(`(?m)^Port (\d+)$`)
	k3sVersion = regexp.MustCompile(`\d+\.\d+\.\d+`)
)

// apply reads the VM's settings, as boot.py applies them.
func (s *Server) apply() {
	var settings struct {
		Artifacts []struct{ Name, URL string }
		Files     []struct{ Path, Content string }
		Tailnet   struct{ Hostname string }
	}
	_ = json.Unmarshal(s.settings, &settings) // others' userData leaves the defaults
	s.SSHPort, s.tailnet = 22, settings.Tailnet.Hostname
	for _, f := range settings.Files {
		if m := sshPort.FindStringSubmatch(f.Content); m != nil && strings.HasPrefix(f.Path, "/etc/ssh/") {
			s.SSHPort, _ = strconv.Atoi(m[1]) // digits
		}
		if f.Path == recipe.KeyFile {
			s.AuthorizedKeys = []string{f.Content}
		}
	}
	for _, a := range settings.Artifacts {
		if v := k3sVersion.FindString(a.URL); a.Name == "k3s" && v != "" {
			s.K3s = "v" + v + "+k3s1"
		}
	}
}

// Tags are what a machine writes of itself beside its state and settings.
type Tags struct {
	CAHash  string // "" is a made up one
	HostKey string // line of an authorized_keys file
	K3s     string // version
	// Tailnet is the state of tailscaled, if the settings have it run: "" is that of a server
	// that nobody logged in.
	Tailnet string
}

// TailnetAddress is that of a server that is logged in.
const TailnetAddress = "100.64.0.7"

// Ready reads a server, and writes that it is ready by the settings that its VM has now.
func Ready(ctx context.Context, arm azure.Resources, id string, t Tags) error {
	s := Server{arm: arm, ID: id}
	var vm virtualMachine
	if err := arm.Get(ctx, fleet.ResourceID(id), computeVersion, &vm, "$expand", "userData"); err != nil {
		return err
	}
	s.settings, s.tags = vm.Properties.UserData, vm.Tags
	s.apply()
	return s.Ready(ctx, t)
}

// Ready writes that the server is ready, by the settings that it was read with.
func (s *Server) Ready(ctx context.Context, t Tags) error {
	tags := map[string]string{
		recipe.TagBoot: recipe.BootReady, recipe.TagSettings: recipe.Digest(s.settings),
		recipe.TagCAHash: cmp.Or(t.CAHash, "sha256:1"), recipe.TagSSHHostKey: t.HostKey, recipe.TagK3s: t.K3s,
	}
	if s.tailnet != "" {
		tags[recipe.TagTailnet] = cmp.Or(t.Tailnet, "NeedsLogin")
	}
	if s.tailnet != "" && (t.Tailnet == recipe.TailnetRunning || t.Tailnet == recipe.TailnetOutOfSync) {
		tags[recipe.TagTailnetName], tags[recipe.TagTailnetAddress] = s.tailnet+".tail1.example", TailnetAddress
	}
	return s.write(ctx, tags)
}

// State writes a state of the server's boot.
func (s *Server) State(ctx context.Context, state string) error {
	return s.write(ctx, map[string]string{recipe.TagBoot: state})
}

// write writes tags that differ; an empty one is left out.
func (s *Server) write(ctx context.Context, tags map[string]string) error {
	maps.DeleteFunc(tags, func(k, v string) bool { return v == "" || s.tags[k] == v })
	if len(tags) == 0 {
		return nil
	}
	op, err := s.arm.Send(ctx, "tag the server", http.MethodPatch, fleet.ResourceID(s.ID+"/providers/Microsoft.Resources/tags/default"), tagsVersion,
		map[string]any{"operation": "Merge", "properties": map[string]any{"tags": tags}})
	if err == nil {
		_, err = op.Wait(ctx)
	}
	return err
}

package k3s

import (
	"cmp"
	"crypto/sha1" // #nosec G505 -- what that Makefile takes, and for a name
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/yamlfile"
)

// makefile has the variables of azure-k3s-cluster's Makefile that its .env may set, and
// those that genparams.py reads, with their values in it.
var makefile = map[string]string{
	"COMPUTE_GROUP": "k3s-compute", "STORAGE_GROUP": "k3s-storage", "LOCATION": "eastus", "MASTER_COUNT": "1",
	"MASTER_SKU": "Standard_B1ls", "AGENT_COUNT": "3", "AGENT_SKU": "Standard_B1ls", "AGENT_PRIORITY": "Spot",
	"ADMIN_USERNAME": "cluster", "FILE_SHARES": "config data registry", "SHARE_NAME": "data", "SSH_PORT": "2211",
	"APPLY_CLOUDFLARE_NSG": "false", "APPLY_ORIGIN_NSG": "true", "VMSS_NAME": "agents", "SHELL": "/bin/bash",
	"USE_DOCKER": "false", "ENABLE_NVIDIA": "false", "ENABLE_TAILSCALE": "false", "K3S_VERSION": "v1.25.2+k3s1",
	"MASTER_FQDN": "", "LOADBALANCER_FQDN": "", "TIMESTAMP": "", "STORAGE_ACCOUNT_NAME": "", "STORAGE_ACCOUNT_GROUP": "",
	"STORAGE_ACCOUNT_KEY": "", "MIN_AGENT_COUNT": "", "MAX_AGENT_COUNT": "", "OWN_KEY": "", "TIMEZONE": "",
}

// notKept are settings that cluster.yaml does not have, and why.
var notKept = map[string]string{
	"USE_DOCKER":          "k3s runs containers with its own containerd",
	"ENABLE_NVIDIA":       "GPU drivers are not in this version",
	"ENABLE_TAILSCALE":    "Tailscale is not in this version; ortet cluster ssh needs no VPN",
	"K3S_VERSION":         "the version is that of the files that ortet cluster artifacts DIR describes",
	"OWN_KEY":             "set access.sshKey to your public key's file, such as the path of ~/.ssh/id_rsa.pub",
	"VMSS_NAME":           "names are fixed",
	"LOADBALANCER_FQDN":   "names are fixed",
	"STORAGE_ACCOUNT_KEY": "machines read the key from Azure",
}

// env is a .env: what it sets, and what became of that.
type env struct {
	set     map[string]string
	dropped []string
	err     error // the first
}

var assignment = regexp.MustCompile(`^(?:export\s+)?([A-Za-z_]\w*)\s*([?:]?)=\s*(?:"([^"]*)"|'([^']*)'|([^#]*?))\s*(?:#.*)?$`)

// FromEnv reads the .env of azure-k3s-cluster's Makefile; what it does not set has the
// Makefile's value. dropped are the settings that cluster.yaml cannot carry or that
// were replaced, with the reason, for the user to read.
func FromEnv(text []byte) (o InitOptions, dropped []string, err error) {
	e := &env{set: map[string]string{}}
	e.read(string(text))
	s := &o.Spec
	s.Location, s.Groups = e.get("LOCATION"), Groups{Storage: e.get("STORAGE_GROUP"), Compute: e.get("COMPUTE_GROUP")}
	o.Name = clusterName(s.Groups.Compute)
	if n := e.get("MASTER_COUNT"); n != "1" {
		e.drop("MASTER_COUNT", n+" makes independent clusters; this version has one server")
	}
	s.Server = Server{Size: e.size("MASTER_SKU"), DiskType: "Standard_LRS"}
	s.Pools = []Pool{e.pool()}
	e.storage(s)
	s.Access = Access{User: e.get("ADMIN_USERNAME"), SSHPort: e.number("SSH_PORT", 2211), SSH: []string{Own}, API: []string{Own}, Ingress: []string{Own}, Fail2ban: true}
	if !strings.EqualFold(e.get("APPLY_ORIGIN_NSG"), "true") {
		s.Access.SSH, s.Access.Ingress = []string{Any}, []string{Any}
	}
	if strings.EqualFold(e.get("APPLY_CLOUDFLARE_NSG"), "true") {
		s.Access.Ingress = []string{Own, Cloudflare}
	}
	// What azure-k3s-cluster's cloud-config does on all machines.
	s.Options = Options{PrivateRegistry: true, SwapGB: 2, Scratch: true, TimeZone: cmp.Or(e.get("TIMEZONE"), "Europe/Lisbon"), RebootAfterUpdates: true}
	for _, name := range slices.Sorted(maps.Keys(e.set)) {
		if why := notKept[name]; why != "" && !strings.EqualFold(e.set[name], "false") {
			e.drop(name, why)
		} else if _, known := makefile[name]; !known {
			e.drop(name, "not a variable of azure-k3s-cluster")
		}
	}
	return o, e.dropped, e.err
}

func (e *env) read(text string) {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		m := assignment.FindStringSubmatch(line)
		if m == nil {
			e.fail("line %d: %s is not an assignment; use NAME=VALUE", i+1, yamlfile.Quote(line))
			continue
		}
		name, value := m[1], m[3]+m[4]+m[5]
		switch {
		case strings.Contains(value, "$"):
			e.fail("line %d: %s of %s is computed; write the value", i+1, yamlfile.Quote(value), name)
		case m[2] == "?" && makefile[name] != "" && makefile[name] != value:
			e.drop(name, "?= has no effect in make, since the Makefile sets a value first")
		default:
			e.set[name] = value
		}
	}
}

func (e *env) get(name string) string { return cmp.Or(e.set[name], makefile[name]) }
func (e *env) drop(name, why string)  { e.dropped = append(e.dropped, name+": "+why) }
func (e *env) fail(format string, a ...any) {
	e.err = cmp.Or(e.err, fmt.Errorf("cannot read .env: "+format, a...))
}

func (e *env) number(name string, otherwise int) int {
	text := cmp.Or(e.get(name), strconv.Itoa(otherwise))
	n, err := strconv.Atoi(text)
	if err != nil {
		e.fail("%s is %s; use a whole number", name, yamlfile.Quote(text))
	}
	return n
}

// tempSize is the default size with a temporary disk, on which swap and scratch lie.
const tempSize = "Standard_D2ds_v5"

// size replaces the Makefile's default, on which k3s server has too little memory.
func (e *env) size(name string) string {
	if e.set[name] != "" {
		return e.set[name]
	}
	e.drop(name, "its default Standard_B1ls has 0.5 GiB of memory, too little for k3s, and no Spot; "+tempSize+" is used")
	return tempSize
}

func (e *env) pool() Pool {
	p := Pool{Name: "agents", DiskType: "Standard_LRS", Size: e.size("AGENT_SKU"), Priority: e.get("AGENT_PRIORITY")}
	switch {
	case p.Priority == "Low":
		e.drop("AGENT_PRIORITY", "Low is the former name of Spot; Spot is used")
		p.Priority = Spot
	case p.Priority != Spot && p.Priority != Regular:
		e.fail("AGENT_PRIORITY is %s; use Spot or Regular", yamlfile.Quote(p.Priority))
	}
	if e.set["MIN_AGENT_COUNT"]+e.set["MAX_AGENT_COUNT"] == "" {
		n := e.number("AGENT_COUNT", 3)
		p.Count = &n
		e.drop("MIN_AGENT_COUNT, MAX_AGENT_COUNT", "not set; the defaults 1 and 5 are not used, and the pool keeps AGENT_COUNT; set min and max in place of count for autoscaling")
		return p
	}
	least, most := e.number("MIN_AGENT_COUNT", 1), e.number("MAX_AGENT_COUNT", 5) // of genparams.py
	if e.set["AGENT_COUNT"] != "" {
		e.drop("AGENT_COUNT", "a pool has either a count, or a minimum and a maximum; MIN_AGENT_COUNT and MAX_AGENT_COUNT are used")
	}
	p.Min, p.Max = &least, &most
	return p
}

// storage takes the account as an existing one: it holds the user's data. The default
// name is what the Makefile's shell command makes of the server's:
// echo NAME|shasum|base64|tr '[:upper:]' '[:lower:]'|cut -c -16.
func (e *env) storage(s *Spec) {
	server := cmp.Or(e.get("MASTER_FQDN"), s.Groups.Compute+"-master0."+s.Location+".cloudapp.azure.com")
	sum := fmt.Sprintf("%x  -\n", sha1.Sum([]byte(server+"\n"))) // #nosec G401 -- a name
	account := "shared0" + strings.ToLower(base64.StdEncoding.EncodeToString([]byte(sum)))[:16]
	s.Storage = Storage{Account: cmp.Or(e.get("STORAGE_ACCOUNT_NAME"), account), Existing: true, Mount: e.get("SHARE_NAME")}
	if group := e.get("STORAGE_ACCOUNT_GROUP"); group != "" {
		if group != s.Groups.Storage && e.set["STORAGE_GROUP"] != "" {
			e.drop("STORAGE_GROUP", "STORAGE_ACCOUNT_GROUP is used, since the account is there")
		}
		s.Groups.Storage = group
	}
	e.drop("STORAGE_ACCOUNT_NAME", s.Storage.Account+" is taken as an existing account in group "+s.Groups.Storage+"; delete storage.existing if it does not exist")
	for _, share := range append(strings.Fields(e.get("FILE_SHARES")), s.Storage.Mount) {
		if !slices.Contains(s.Storage.Shares, share) {
			s.Storage.Shares = append(s.Storage.Shares, share)
		}
	}
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// clusterName is made from the compute group's name.
func clusterName(group string) string {
	name := notName.ReplaceAllString(strings.ToLower(group), "-")
	name = strings.TrimLeft(strings.TrimSuffix(name, "-compute"), "-0123456789")
	return cmp.Or(strings.Trim(name[:min(20, len(name))], "-"), "k3s")
}

package elastic

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// makefileDefaults are the variables of azure-k3s-cluster's Makefile that its .env
// may change, and those that genparams.py and cloud-config read.
var makefileDefaults = map[string]string{
	"COMPUTE_GROUP": "k3s-compute", "STORAGE_GROUP": "k3s-storage", "LOCATION": "eastus",
	"MASTER_COUNT": "1", "MASTER_SKU": "Standard_B1ls", "AGENT_COUNT": "3", "AGENT_SKU": "Standard_B1ls", "AGENT_PRIORITY": "Spot",
	"MASTER_FQDN": "$(COMPUTE_GROUP)-master0.$(LOCATION).cloudapp.azure.com", "LOADBALANCER_FQDN": "", "VMSS_NAME": "agents",
	"ADMIN_USERNAME": "cluster", "TIMESTAMP": "", "FILE_SHARES": "config data registry", "STORAGE_ACCOUNT_NAME": "", "SHARE_NAME": "data",
	"SSH_PORT": "2211", "APPLY_CLOUDFLARE_NSG": "false", "APPLY_ORIGIN_NSG": "true", "USE_DOCKER": "false", "ENABLE_NVIDIA": "false",
	"ENABLE_TAILSCALE": "false", "K3S_VERSION": "v1.25.2+k3s1", "SHELL": "/bin/bash",
}

// undefined are those without a value in the Makefile.
var undefined = []string{"STORAGE_ACCOUNT_GROUP", "STORAGE_ACCOUNT_KEY", "MIN_AGENT_COUNT", "MAX_AGENT_COUNT", "OWN_KEY", "TIMEZONE"}

// FromEnv reads the .env of azure-k3s-cluster's Makefile; what it does not set has the
// Makefile's value. dropped are the settings that cluster.yaml cannot carry or that
// were replaced, with the reason, for the user to read.
func FromEnv(text []byte) (o InitOptions, dropped []string, err error) {
	e, err := readEnv(string(text))
	if err != nil {
		return o, nil, err
	}
	s := &o.Spec
	s.Location = e.get("LOCATION")
	s.Groups = Groups{Storage: e.get("STORAGE_GROUP"), Compute: e.get("COMPUTE_GROUP")}
	o.Name = clusterName(s.Groups.Compute)
	e.server(s)
	if err := e.pool(s); err != nil {
		return o, nil, err
	}
	e.storage(s)
	if err := e.access(s); err != nil {
		return o, nil, err
	}
	// What azure-k3s-cluster's cloud-config does on all machines.
	s.Options = Options{PrivateRegistry: true, SwapGB: 2, Scratch: true, TimeZone: "Europe/Lisbon", RebootAfterUpdates: true}
	if zone := e.get("TIMEZONE"); zone != "" {
		s.Options.TimeZone = zone
	}
	e.rest()
	return o, e.dropped, nil
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// clusterName is made from the compute group's name.
func clusterName(group string) string {
	name := notName.ReplaceAllString(strings.ToLower(group), "-")
	name = strings.TrimLeft(strings.TrimSuffix(name, "-compute"), "-0123456789")
	name = strings.Trim(name[:min(20, len(name))], "-")
	if name == "" {
		return "k3s"
	}
	return name
}

type env struct {
	values  map[string]string
	set     map[string]bool // by .env
	dropped []string
}

var (
	assignment = regexp.MustCompile(`^(?:(?:export|override)\s+)*([A-Za-z_][A-Za-z0-9_]*)\s*(\?=|:::?=|::?=|\+=|=)\s*(.*)$`)
	reference  = regexp.MustCompile(`\$(?:\(([A-Za-z_][A-Za-z0-9_]*)\)|\{([A-Za-z_][A-Za-z0-9_]*)\})`)
	exported   = regexp.MustCompile(`^(?:un)?export(\s+[A-Za-z_][A-Za-z0-9_]*)*$`)
)

// readEnv reads assignments as GNU make does, but for conditionals and functions.
func readEnv(text string) (*env, error) {
	e := &env{values: map[string]string{}, set: map[string]bool{}}
	for name, value := range makefileDefaults {
		e.values[name] = value
	}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		number, line := i+1, lines[i]
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimRight(strings.TrimSuffix(line, `\`), " \t") + " " + strings.TrimLeft(lines[i], " \t")
		}
		line = strings.TrimSpace(uncomment(line))
		if line == "" || exported.MatchString(line) {
			continue
		}
		m := assignment.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("cannot read .env: line %d: %s is not an assignment; use NAME=VALUE", number, quote(line))
		}
		name, operator, value := m[1], m[2], m[3]
		if n := len(value); n > 1 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1] // make keeps quotes, and the shell of a recipe removes them
		}
		if strings.Contains(reference.ReplaceAllString(value, ""), "$") {
			return nil, fmt.Errorf("cannot read .env: line %d: %s of %s is computed; write the value", number, quote(value), name)
		}
		old, defined := e.values[name]
		switch {
		case operator == "?=" && defined:
			if e.expand(value, 0) != e.expand(old, 0) {
				e.drop(name, "?= has no effect in make, since the Makefile sets a value first")
			}
			continue
		case operator == "+=" && old != "":
			value = old + " " + value
		case strings.HasPrefix(operator, ":"):
			value = e.expand(value, 0)
		}
		e.values[name], e.set[name] = value, true
	}
	return e, nil
}

// uncomment removes what follows a # that has no backslash before it.
func uncomment(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] != '\\') {
			line = line[:i]
			break
		}
	}
	return strings.ReplaceAll(line, `\#`, "#")
}

// get is a variable's value with references replaced.
func (e *env) get(name string) string { return strings.TrimSpace(e.expand(e.values[name], 0)) }

// expand replaces references; depth ends those that refer to themselves.
func (e *env) expand(value string, depth int) string {
	if depth > 8 || len(value) > 10_000 {
		return ""
	}
	return reference.ReplaceAllStringFunc(value, func(r string) string { return e.expand(e.values[r[2:len(r)-1]], depth+1) })
}

func (e *env) drop(name, why string) { e.dropped = append(e.dropped, name+": "+why) }

func (e *env) number(name string) (int, error) {
	n, err := strconv.Atoi(e.get(name))
	if err != nil {
		return 0, fmt.Errorf("cannot read .env: %s is %s; use a whole number", name, quote(e.get(name)))
	}
	return n, nil
}

func (e *env) yes(name string) bool { return strings.EqualFold(e.get(name), "true") }

func (e *env) server(s *Spec) {
	if n := e.get("MASTER_COUNT"); n != "1" {
		e.drop("MASTER_COUNT", n+" makes independent clusters; this version has one server")
	}
	if e.set["MASTER_SKU"] {
		s.Server.Size = e.get("MASTER_SKU")
	} else {
		e.drop("MASTER_SKU", "its default Standard_B1ls has 0.5 GiB of memory, too little for k3s server; "+defaultSize+" is used")
		s.Server.Size = defaultSize
	}
	s.Server.DiskType = "Standard_LRS"
}

func (e *env) pool(s *Spec) error {
	p := Pool{Name: "agents", DiskType: "Standard_LRS", Size: e.get("AGENT_SKU")}
	switch priority := e.get("AGENT_PRIORITY"); priority {
	case Spot, Regular:
		p.Priority = priority
	case "Low":
		p.Priority = Spot
		e.drop("AGENT_PRIORITY", "Low is the former name of Spot; Spot is used")
	default:
		return fmt.Errorf("cannot read .env: AGENT_PRIORITY is %s; use Spot or Regular", quote(priority))
	}
	if !e.set["AGENT_SKU"] {
		e.drop("AGENT_SKU", "its default Standard_B1ls has 0.5 GiB of memory and no Spot; "+defaultSize+" is used")
		p.Size = defaultSize
	} else if p.Priority == Spot && noSpot.MatchString(p.Size) {
		e.drop("AGENT_PRIORITY", p.Size+" has no Spot in Azure; the size is kept and priority Regular is used, which costs more")
		p.Priority = Regular
	}
	least, err := e.number("AGENT_COUNT")
	if err != nil {
		return err
	}
	p.Count = &least
	if e.set["MIN_AGENT_COUNT"] || e.set["MAX_AGENT_COUNT"] {
		least, most := 1, 5 // of genparams.py
		for name, n := range map[string]*int{"MIN_AGENT_COUNT": &least, "MAX_AGENT_COUNT": &most} {
			if e.set[name] {
				if *n, err = e.number(name); err != nil {
					return err
				}
			}
		}
		p.Count, p.Min, p.Max = nil, &least, &most
		if e.set["AGENT_COUNT"] {
			e.drop("AGENT_COUNT", "a pool has either a count, or a minimum and a maximum; MIN_AGENT_COUNT and MAX_AGENT_COUNT are used")
		}
	} else {
		e.drop("MIN_AGENT_COUNT, MAX_AGENT_COUNT", "not set; the defaults 1 and 5 are not used, and the pool keeps AGENT_COUNT; set min and max in place of count for autoscaling")
	}
	s.Pools = []Pool{p}
	return nil
}

// storage takes the account as an existing one: it holds the user's data.
func (e *env) storage(s *Spec) {
	s.Storage.Existing = true
	s.Storage.Account = e.get("STORAGE_ACCOUNT_NAME")
	if s.Storage.Account == "" {
		s.Storage.Account = defaultAccount(e.get("MASTER_FQDN"))
	}
	if group := e.get("STORAGE_ACCOUNT_GROUP"); group != "" {
		if group != s.Groups.Storage && e.set["STORAGE_GROUP"] {
			e.drop("STORAGE_GROUP", "STORAGE_ACCOUNT_GROUP is used, since the account is there")
		}
		s.Groups.Storage = group
	}
	e.drop("STORAGE_ACCOUNT_NAME", s.Storage.Account+" is taken as an existing account in group "+s.Groups.Storage+"; delete storage.existing if there is none")
	s.Storage.Mount = e.get("SHARE_NAME")
	for _, share := range append(strings.Fields(e.get("FILE_SHARES")), s.Storage.Mount) {
		if !strings.Contains(" "+strings.Join(s.Storage.Shares, " ")+" ", " "+share+" ") {
			s.Storage.Shares = append(s.Storage.Shares, share)
		}
	}
}

// defaultAccount is what the Makefile's shell command makes of a name:
// echo NAME|shasum|base64|tr '[:upper:]' '[:lower:]'|cut -c -16.
func defaultAccount(fqdn string) string {
	sum := fmt.Sprintf("%x  -\n", sha1.Sum([]byte(fqdn+"\n")))
	return "shared0" + strings.ToLower(base64.StdEncoding.EncodeToString([]byte(sum)))[:16]
}

func (e *env) access(s *Spec) (err error) {
	a := &s.Access
	if a.SSHPort, err = e.number("SSH_PORT"); err != nil {
		return err
	}
	a.User, a.Fail2ban = e.get("ADMIN_USERNAME"), true
	a.SSH, a.API, a.Ingress = []string{Own}, []string{Own}, []string{Own}
	if !e.yes("APPLY_ORIGIN_NSG") {
		a.SSH, a.Ingress = []string{Any}, []string{Any}
	}
	if e.yes("APPLY_CLOUDFLARE_NSG") {
		a.Ingress = []string{Own, Cloudflare}
	}
	return nil
}

func (e *env) rest() {
	for _, option := range [][2]string{
		{"USE_DOCKER", "k3s runs containers with its own containerd"},
		{"ENABLE_NVIDIA", "GPU drivers are not in this version"},
		{"ENABLE_TAILSCALE", "Tailscale is not in this version; ortet cluster ssh needs no VPN"},
	} {
		if e.yes(option[0]) {
			e.drop(option[0], option[1])
		}
	}
	if e.set["K3S_VERSION"] {
		e.drop("K3S_VERSION", e.get("K3S_VERSION")+" is not used; the version is that of the files that ortet cluster artifacts DIR describes")
	}
	if e.yes("OWN_KEY") {
		e.drop("OWN_KEY", "set access.sshKey to your public key's file, such as the path of ~/.ssh/id_rsa.pub")
	}
	for _, name := range slices.Sorted(maps.Keys(e.set)) {
		if slices.Contains([]string{"VMSS_NAME", "LOADBALANCER_FQDN", "STORAGE_ACCOUNT_KEY"}, name) {
			e.drop(name, "not used; names are fixed, and machines read keys from Azure")
		} else if _, known := makefileDefaults[name]; !known && !slices.Contains(undefined, name) {
			e.drop(name, "not a variable of azure-k3s-cluster")
		}
	}
}

package lifecycle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/docs/schema"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/workflow"
)

// schemaFields are the leaves of the schema of cluster.yaml, "spec.pools[].labels".
func schemaFields(t *testing.T) (all []string) {
	type node struct {
		Ref        string `json:"$ref"`
		Type       any
		Properties map[string]*node
		Items      *node
		Defs       map[string]*node `json:"$defs"`
	}
	var root node
	if err := json.Unmarshal(schema.Cluster, &root); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, n *node)
	walk = func(path string, n *node) {
		if n.Ref != "" {
			n = root.Defs[strings.TrimPrefix(n.Ref, "#/$defs/")]
		}
		switch {
		case len(n.Properties) > 0:
			for name, p := range n.Properties {
				walk(strings.TrimPrefix(path+"."+name, "."), p)
			}
		case n.Items != nil && n.Items.Ref != "":
			walk(path+"[]", n.Items)
		default:
			all = append(all, path)
		}
	}
	walk("", &root)
	return all
}

// edits change a field of cluster.yaml: added to what has none, changed, and removed after.
// A value is JSON; "" is no such step.
var edits = map[string]struct {
	added, changed string
	with           map[string]string // other fields that go with it
	keeps          bool              // what was added stays when the field is removed
	silent         bool              // nothing in Azure shows it
}{
	"apiVersion":               {},
	"kind":                     {},
	"metadata.name":            {added: `"other"`},
	"spec.location":            {added: `"northeurope"`},
	"spec.groups":              {added: `{"compute": "other-compute"}`, changed: `{"storage": "other-storage"}`},
	"spec.image":               {added: image("24.04.202501010"), changed: image("0.20260101.1")},
	"spec.artifacts.k3s":       {changed: `{"url": "https://m.example/k3s?token=1", "sha256": "` + strings.Repeat("1", 64) + `"}`},
	"spec.artifacts.images":    {added: `{"url": "https://m.example/i.tar", "sha256": "` + strings.Repeat("1", 64) + `"}`, changed: `{"url": "https://m.example/i.tar", "sha256": "` + strings.Repeat("2", 64) + `"}`},
	"spec.artifacts.ortet":     {changed: `{"url": "https://m.example/ortet", "sha256": "` + strings.Repeat("1", 64) + `"}`},
	"spec.artifacts.ortetNode": {changed: `{"url": "https://m.example/ortet-node", "sha256": "` + strings.Repeat("1", 64) + `"}`},
	"spec.artifacts.tailscale": {added: tailnetArtifact, changed: strings.ReplaceAll(tailnetArtifact, "111", "222"), with: map[string]string{"spec.access.tailscale": "{}"}},
	"spec.artifacts.containerToolkit[]": {added: `[` + toolkitDeb("1") + `]`, changed: `[` + toolkitDeb("2") + `]`, with: map[string]string{
		"spec.pools[].size": `"Standard_NV6ads_A10_v5"`, "spec.pools[].gpu": `{"driver": "none"}`, "spec.options.devicePlugin": autoscaler}},
	"spec.artifacts.version": {added: `"v1.36.3+k3s1"`, changed: `"v1.36.4+k3s1"`},
	"spec.network":           {added: `{"outbound": "addresses"}`},
	"spec.server.size":       {changed: `"Standard_D4ds_v5"`},
	"spec.server.diskGB":     {added: `64`, changed: `128`},
	"spec.server.diskType":   {added: `"Premium_LRS"`, changed: `"Standard_LRS"`},
	"spec.server.image":      {added: image("24.04.202501010"), changed: image("0.20260101.1")},
	"spec.server.stateGB":    {added: `16`, changed: `32`, keeps: true},
	"spec.server.k3s":        {added: `{"disable": ["traefik"]}`, changed: `{"disable": ["servicelb"], "etcd-s3-secret-key": "hush"}`},
	"spec.pools[].name":      {},
	"spec.pools[].size":      {changed: `"Standard_D4ds_v5"`},
	"spec.pools[].count":     {added: `3`, changed: `1`},
	"spec.pools[].min":       {added: `1`, changed: `2`, with: map[string]string{"spec.pools[].count": "null", "spec.pools[].max": "4"}},
	"spec.pools[].max":       {added: `4`, changed: `5`, with: map[string]string{"spec.pools[].count": "null", "spec.pools[].min": "2"}},
	"spec.pools[].scaleBy": {added: `"pods"`, changed: `"cpu"`, with: map[string]string{"spec.pools[].count": "null", "spec.pools[].min": "2", "spec.pools[].max": "4",
		"spec.options.clusterAutoscaler": autoscaler}},
	"spec.pools[].priority":       {added: `"Regular"`},
	"spec.pools[].evictionPolicy": {added: `"Deallocate"`},
	"spec.pools[].zones":          {added: `["1"]`},
	"spec.pools[].scaleInPolicy":  {added: `"NewestVM"`, changed: `"OldestVM"`},
	"spec.pools[].diskGB":         {added: `64`, changed: `128`},
	"spec.pools[].diskType":       {added: `"Premium_LRS"`},
	"spec.pools[].image":          {added: image("24.04.202501010"), changed: image("0.20260101.1")},
	"spec.pools[].labels":         {added: `{"tier": "web"}`, changed: `{"tier": "batch", "x.example/y": "z"}`},
	"spec.pools[].taints":         {added: `["a=b:NoSchedule"]`, changed: `["a=c:NoSchedule"]`},
	"spec.pools[].gpu": {added: `{"driver": "image"}`, changed: `{}`, with: map[string]string{"spec.pools[].size": `"Standard_NV6ads_A10_v5"`,
		"spec.artifacts.containerToolkit": `[` + toolkitDeb("1") + `]`, "spec.options.devicePlugin": autoscaler}},
	"spec.pools[].k3s":                  {added: `{"kubelet-arg": ["max-pods=60"]}`, changed: `{"kubelet-arg": ["max-pods=61"]}`},
	"spec.storage.account":              {added: `"demo7654321"`},
	"spec.storage.existing":             {added: `true`, silent: true},
	"spec.storage.shares":               {added: `["config", "data", "registry", "more"]`, changed: `["config", "data", "registry", "other"]`},
	"spec.storage.mount":                {added: `"config"`, changed: `"registry"`},
	"spec.access.user":                  {added: `"admin2024"`},
	"spec.access.sshPort":               {added: `2222`, changed: `2022`},
	"spec.access.sshKey":                {},
	"spec.access.ssh":                   {added: `["own", "192.0.2.128/25"]`, changed: `["own", "198.51.100.0/24"]`},
	"spec.access.api":                   {added: `["own", "192.0.2.128/25"]`, changed: `["own", "any"]`},
	"spec.access.ingress":               {added: `["any"]`, changed: `["cloudflare"]`},
	"spec.access.fail2ban":              {added: `true`},
	"spec.access.publicAddress":         {added: `"none"`, with: map[string]string{"spec.access.ssh": `["10.0.0.0/8"]`, "spec.access.api": `["10.0.0.0/8"]`}},
	"spec.access.tailscale.hostname":    {added: `"a"`, changed: `"b"`, with: map[string]string{"spec.artifacts.tailscale": tailnetArtifact}},
	"spec.access.tailscale.tags":        {added: `["tag:a"]`, changed: `["tag:b"]`, with: map[string]string{"spec.artifacts.tailscale": tailnetArtifact}},
	"spec.access.tailscale.loginServer": {added: `"https://a.example"`, changed: `"https://b.example"`, with: map[string]string{"spec.artifacts.tailscale": tailnetArtifact}},
	"spec.access.rules[]":               {added: rules("8000"), changed: rules("8001")},
	"spec.options.privateRegistry":      {added: `true`},
	"spec.options.swapGB":               {added: `2`, changed: `4`},
	"spec.options.scratch":              {added: `true`},
	"spec.options.timeZone":             {added: `"Europe/Lisbon"`, changed: `"UTC"`},
	"spec.options.rebootAfterUpdates":   {added: `true`},
	"spec.options.clusterAutoscaler":    {added: autoscaler, changed: strings.ReplaceAll(autoscaler, "1", "2")},
	"spec.options.devicePlugin":         {added: autoscaler, changed: strings.ReplaceAll(autoscaler, "1", "2")},
	"spec.manifests[]":                  {added: manifest("1"), changed: manifest("2")},
	"spec.packages":                     {added: `["jq"]`, changed: `["git"]`},
	"spec.backup":                       {added: `{"group": "backups", "keep": 3}`, changed: `{"group": "backups", "keep": 4, "region": "northeurope"}`},
	"spec.protect":                      {added: `true`},
}

func image(version string) string {
	return `{"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "` + version + `"}`
}

var autoscaler = `"registry.example/cluster-autoscaler@sha256:` + strings.Repeat("1", 64) + `"`

func toolkitDeb(digit string) string {
	return `{"url": "https://m.example/nvidia-container-toolkit_1.20.2-1_amd64.deb", "sha256": "` + strings.Repeat(digit, 64) + `"}`
}

func rules(port string) string {
	return `[{"name": "game", "priority": 300, "protocol": "Tcp", "ports": ["` + port + `"], "from": ["any"], "to": "servers"}]`
}

func manifest(digit string) string {
	return `[{"name": "web", "url": "https://m.example/web.yaml", "sha256": "` + strings.Repeat(digit, 64) + `"}]`
}

// edited is cluster.yaml with fields set to values in JSON.
func edited(t *testing.T, text string, fields map[string]string) string {
	var tree object
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	for field, value := range fields {
		at, parts := tree, strings.Split(strings.TrimSuffix(field, "[]"), ".")
		for _, part := range parts[:len(parts)-1] {
			name, list := strings.CutSuffix(part, "[]")
			if at[name] == nil {
				at[name] = object{}
			}
			if list {
				at, _ = at[name].([]any)[0].(object)
			} else {
				at, _ = at[name].(object)
			}
		}
		var v any
		if err := json.Unmarshal([]byte(value), &v); err != nil {
			t.Fatal(field, err)
		}
		if at[parts[len(parts)-1]] = v; v == nil {
			delete(at, parts[len(parts)-1])
		}
	}
	out, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// machines keep the cloud-init documents that Azure hands over.
type machines struct {
	azsim.NopSubstrate
	mu   sync.Mutex
	data map[string]string // by lower-case id
}

func (m *machines) Boot(_ context.Context, c azsim.Computer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Provision {
		m.data[c.ID] = fmt.Sprint(string(c.CustomData), c.SSHKeys)
	}
	return nil
}

// reached is all that a change can reach, as Azure and the machines have it.
func (x *site) reached(machines *machines) map[string]string {
	x.Helper()
	all := map[string]string{}
	read := func(what, id string, fields ...string) {
		var v any
		version := "2024-07-01"
		for part, other := range map[string]string{"Microsoft.Network": "2024-05-01", "Microsoft.Storage": "2023-05-01", "Microsoft.Insights": "2022-10-01"} {
			if strings.Contains(id, part) {
				version = other
			}
		}
		if err := x.arm.Get(x.ctx, fleet.ResourceID(id), version, &v); fleet.IgnoreNotFound(err) != nil {
			x.Error(err)
		}
		all[what] += pick(v, fields)
	}
	vm, _ := x.thing(serverVM, "$expand", "userData")
	disk, _ := x.thing(stateDisk)
	all[lifecycle.ReachServer] = fmt.Sprint(string(vm.Properties.UserData), vm.Properties.HardwareProfile.VMSize, disk.Properties.DiskSizeGB)
	all[lifecycle.ReachNewServer] = vm.Properties.VMID
	for _, group := range []string{"servers", "agents"} {
		read(lifecycle.ReachNetwork, computeGroup+"/providers/Microsoft.Network/networkSecurityGroups/"+group, "name", "sourceAddressPrefixes", "destinationPortRanges", "priority")
	}
	read(lifecycle.ReachNetwork, computeGroup+"/providers/Microsoft.Network/publicIPAddresses/server", "ipAddress")
	read(lifecycle.ReachStorage, storageGroup+"/providers/Microsoft.Storage/storageAccounts/demo1234567/fileServices/default/shares", "name")
	for _, id := range []string{pool, morePool} {
		read(lifecycle.ReachPool, id, "capacity", "min", "max", "rules", "size", "sku", "diskSizeGB", "storageAccountType", "imageReference")
		read(lifecycle.ReachPool, strings.Replace(id, "Microsoft.Compute/virtualMachineScaleSets", "Microsoft.Insights/autoscaleSettings", 1), "minimum", "maximum")
		list, _ := x.cloud.Instances(x.ctx, fleet.ResourceID(id))
		if len(list) == 0 {
			continue
		}
		one := list[0].ID
		x.send(http.MethodPost, id+"/manualupgrade", "2024-07-01", object{"instanceIds": []string{list[0].InstanceID}})
		x.send(http.MethodPost, string(one)+"/reimage", "2024-07-01", object{})
		machines.mu.Lock()
		all[lifecycle.ReachAgents] += machines.data[strings.ToLower(string(one))]
		machines.mu.Unlock()
	}
	return all
}

// pick are members of these names, wherever they are in v.
func pick(v any, names []string) (text string) {
	switch v := v.(type) {
	case object:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if slices.Contains(names, key) {
				data, _ := json.Marshal(v[key])
				text += key + "=" + string(data) + " "
			} else {
				text += pick(v[key], names)
			}
		}
	case []any:
		for _, one := range v {
			text += pick(one, names)
		}
	}
	return text
}

// A field of the schema without a row, and a row without a test, fail.
func TestPlanHasARowForEveryField(t *testing.T) {
	rows := map[string]bool{}
	for _, r := range lifecycle.Reaches() {
		rows[r.Field] = true
		if _, tested := edits[r.Field]; !tested || len(r.Effects) == 0 {
			t.Errorf("%s has no edit in this test, or no effect", r.Field)
		}
	}
	all := schemaFields(t)
	for _, field := range all {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(rows)), func(row string) bool {
			rest, in := strings.CutPrefix(field, row)
			return in && (rest == "" || rest[0] == '.')
		}) {
			t.Errorf("docs/schema/cluster.v1alpha1.json has %s: add what its change reaches to lifecycle.Reaches, and an edit to this test", field)
		}
	}
	if len(all) < 80 || len(edits) != len(rows) {
		t.Errorf("%d fields, %d rows, %d edits", len(all), len(rows), len(edits))
	}
}

// TestOutcomePlanOfEveryField adds, changes and removes each field of cluster.yaml, and compares
// what plan says with what up then changes in Azure and in agents' cloud-init.
func TestOutcomePlanOfEveryField(t *testing.T) {
	base := edited(t, file, map[string]string{"spec.server.size": `"Standard_D2ds_v5"`, "spec.pools[].size": `"Standard_D2ds_v5"`})
	for _, row := range lifecycle.Reaches() {
		e := edits[row.Field]
		if e.added+e.changed == "" {
			continue
		}
		t.Run(row.Field, func(t *testing.T) {
			t.Parallel()
			m := &machines{data: map[string]string{}}
			play(t, func(s *azsim.Server) { s.Substrate = m }, func(x *site) {
				go x.boot()
				x.up(base)
				before := x.reached(m)
				for step, value := range []string{e.added, e.changed, "removed"} {
					fields := maps.Clone(e.with)
					if fields == nil {
						fields = map[string]string{}
					}
					fields[row.Field] = value
					text := base
					switch {
					case value == "":
						continue
					case value != "removed":
						text = edited(t, base, fields)
					}
					before = x.compare(row.Field, fmt.Sprint([]string{"added ", "changed to ", "removed "}[step], value), text, before, m, e.keeps && value == "removed",
						e.silent || row.Field == "spec.storage.shares" && value == "removed")
				}
			})
		})
	}
}

// compare plans and ups a file, and compares what plan said with what up did.
func (x *site) compare(field, step, text string, before map[string]string, m *machines, keeps, silent bool) (after map[string]string) {
	x.Helper()
	p, err := x.manager(text).Plan(x.ctx)
	if slices.ContainsFunc(lifecycle.Reaches(), func(r lifecycle.Reach) bool {
		return r.Field == field && r.Effects[0].Reaches == lifecycle.ReachRefused
	}) {
		if step == "removed removed" {
			return before
		}
		_, upErr := x.manager(text).Up(x.ctx, lifecycle.UpOptions{})
		if workflow.ExitCode(err) != workflow.ExitRefused || workflow.ExitCode(upErr) != workflow.ExitRefused {
			x.Errorf("%s %s: plan ends with %v, up with %v; both are to refuse", field, step, err, upErr)
		}
		after = x.reached(m)
		if !maps.Equal(before, after) {
			x.Errorf("%s %s is refused, and up changed something", field, step)
		}
		return after
	}
	if err != nil {
		x.Fatalf("%s %s: plan: %v", field, step, err)
	}
	x.Logf("%s %s:\n%s", field, step, lines(p))
	named, says, again := false, []string{}, false
	pattern := regexp.MustCompile(`\[[^\]]*\]`)
	for _, f := range p.Fields {
		named = named || strings.HasPrefix(pattern.ReplaceAllString(f.Field, "[]"), strings.TrimSuffix(field, "[]")) && f.Before != f.After
		for _, e := range f.Effects {
			again = again || e.Reaches == lifecycle.ReachNewServer
			if e.Reaches != lifecycle.ReachNothing && e.Reaches != lifecycle.ReachNewServer && !slices.Contains(says, e.Reaches) {
				says = append(says, e.Reaches)
			}
		}
	}
	if named == keeps {
		x.Errorf("%s %s: plan names it: %t: %+v", field, step, named, p.Fields)
	}
	x.up(text)
	after = x.reached(m)
	did := []string{}
	for what := range after {
		if before[what] != after[what] {
			did = append(did, what)
		}
	}
	slices.Sort(says)
	slices.Sort(did)
	if keeps || silent {
		says = did
	}
	if !slices.Equal(says, did) {
		x.Errorf("%s %s: plan says that it reaches %q, and up changed %q: %+v", field, step, says, did, p.Fields)
	}
	if again {
		if p, err := x.manager(text).Plan(x.ctx); err != nil || len(p.Fields) == 0 {
			x.Errorf("%s %s: plan before the server is made again: %v %+v", field, step, err, p)
		}
		if _, err := x.manager(text).ReplaceServer(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Errorf("%s %s: replace server: %v", field, step, err)
		}
		after = x.reached(m)
	}
	if p, err := x.manager(text).Plan(x.ctx); err != nil {
		x.Fatalf("%s %s: plan after up: %v", field, step, err)
	} else if len(p.Fields) > 0 {
		x.Errorf("%s %s: plan after up: %v %+v", field, step, err, p.Fields)
	}
	return after
}

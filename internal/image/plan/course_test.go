package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

// good is a world in which nothing speaks against a capture.
func good() Observed {
	donor := fleet.Node{Name: "pool1000000", OS: "linux", Architecture: "amd64", Ready: true, Labels: map[string]string{},
		Annotations: map[string]string{}}
	id := pool.Child("virtualMachines", "0")
	disk := fleet.Disk{ID: "d", Generation: "V2", Architecture: "x64"}
	return Observed{
		Donor: &donor, Disk: &disk, SelfNode: "elsewhere",
		Pool: &fleet.Pool{ID: pool, Name: "pool1", Orchestration: fleet.Uniform, UpgradeMode: fleet.Manual, Tags: map[string]string{},
			Model: fleet.Model{Linux: true}},
		Instance:  &fleet.Instance{ID: id, Power: fleet.PowerRunning, OSDisk: "d", Generation: "V2"},
		Workbench: &Workbench{},
	}
}

func codes(problems []fleet.Problem) (out []string) {
	for _, p := range problems {
		out = append(out, p.Code)
	}
	slices.Sort(out)
	return out
}

func TestCaptureProblems(t *testing.T) {
	definition := func(change func(d *fleet.Definition)) func(o *Observed, q *Request) {
		return func(o *Observed, _ *Request) {
			d := NewDefinition(DefinitionOf(pool), *o, nil)
			change(&d)
			o.Definition = &d
		}
	}
	for name, c := range map[string]struct {
		change func(o *Observed, q *Request)
		want   string
	}{
		"none":             {func(*Observed, *Request) {}, ""},
		"no node":          {func(o *Observed, _ *Request) { *o = Observed{} }, "NodeNotFound"},
		"no instance":      {func(o *Observed, _ *Request) { *o = Observed{Donor: o.Donor, NotInstance: textError("no")} }, "NotAnInstance"},
		"windows":          {func(o *Observed, _ *Request) { o.Donor.OS = "windows" }, "NotLinux"},
		"not ready":        {func(o *Observed, _ *Request) { o.Donor.Ready = false }, "NodeNotReady"},
		"own node":         {func(o *Observed, _ *Request) { o.SelfNode = "pool1000000" }, "OwnNode"},
		"own node, online": {func(o *Observed, q *Request) { o.SelfNode, q.Online = "pool1000000", true }, ""},
		"repairs, online":  {func(o *Observed, q *Request) { o.Pool.AutomaticRepairs, q.Online = true, true }, ""},
		"workbench":        {func(o *Observed, _ *Request) { o.Donor.Annotations[fleet.AnnotationWorkbench] = "pool2" }, "IsWorkbench"},
		"rebooting":        {func(o *Observed, _ *Request) { o.Donor.Annotations[fleet.AnnotationKuredReboot] = "now" }, "RebootPending"},
		"stopped":          {func(o *Observed, _ *Request) { o.Instance.Power = fleet.PowerStopped }, "InstanceNotRunning"},
		"other size": {func(o *Observed, _ *Request) {
			o.ModelSizes = []fleet.SizeInfo{{Architecture: "x64", Generations: []string{"V1", "V2"}}}
		}, ""},
		"size of another architecture": {func(o *Observed, _ *Request) { o.ModelSizes = []fleet.SizeInfo{{}, {Architecture: "Arm64"}} }, "MixedPool"},
		"size of another generation":   {func(o *Observed, _ *Request) { o.ModelSizes = []fleet.SizeInfo{{Generations: []string{"V3"}}} }, "MixedPool"},
		"size with NVMe alone":         {func(o *Observed, _ *Request) { o.ModelSizes = []fleet.SizeInfo{{Controllers: []string{"NVMe"}}} }, "MixedPool"},
		"no profile":                   {func(o *Observed, _ *Request) { o.Pool.NoProfile, o.Pool.Model = true, fleet.Model{} }, "NoProfile"},
		"ephemeral": {func(o *Observed, _ *Request) { o.Pool.Model.EphemeralOS, o.Disk, o.Instance.OSDisk = true, nil, "" },
			"EphemeralDisk"},
		"canary": {func(o *Observed, _ *Request) {
			o.Pool.ID, o.Pool.Tags[fleet.TagCanary] = fleet.CanaryOf(o.Pool.ID), "2026-11-28T00:00:00Z"
		}, "IsCanary"},
		"automatic":           {func(o *Observed, _ *Request) { o.Pool.UpgradeMode = "automatic" }, "AutomaticUpgrade"},
		"rolling":             {func(o *Observed, _ *Request) { o.Pool.UpgradeMode = fleet.Rolling }, "RollingUpgrade"},
		"rolling, allowed":    {func(o *Observed, q *Request) { o.Pool.UpgradeMode = fleet.Rolling; q.AllowRolling = true }, ""},
		"OS upgrade":          {func(o *Observed, _ *Request) { o.Pool.AutomaticOSUpgrade = true }, "AutomaticOSUpgrade"},
		"OS upgrade, allowed": {func(o *Observed, q *Request) { o.Pool.AutomaticOSUpgrade = true; q.ExcludeFromLatest = true }, ""},
		"repairs":             {func(o *Observed, _ *Request) { o.Pool.AutomaticRepairs = true }, "AutomaticRepairs"},
		"spot":                {func(o *Observed, _ *Request) { o.Pool.Spot = true }, ""},
		"spot, deallocated":   {func(o *Observed, q *Request) { o.Pool.Spot = true; q.Deallocate = true }, "SpotDeallocate"},
		"control plane":       {func(o *Observed, _ *Request) { o.Donor.ControlPlane = true }, "ControlPlane"},
		"AKS by tag":          {func(o *Observed, _ *Request) { o.Pool.Tags["aks-managed-poolName"] = "p" }, "ManagedByAKS"},
		"AKS by label":        {func(o *Observed, _ *Request) { o.Donor.Labels["kubernetes.azure.com/cluster"] = "MC_a_b_c" }, "ManagedByAKS"},
		"AKS Engine":          {func(o *Observed, _ *Request) { o.Donor.Labels["kubernetes.azure.com/cluster"] = "my-group" }, ""},
		"CAPZ":                {func(o *Observed, _ *Request) { o.Pool.Tags[tagCAPZ+"mine"] = "owned" }, "OwnedByClusterAPI"},
		"CAPZ, allowed":       {func(o *Observed, q *Request) { o.Pool.Tags[tagCAPZ+"mine"] = "owned"; q.AllowOwned = true }, ""},
		"no workbench":        {func(o *Observed, _ *Request) { o.Workbench = nil }, "NoWorkbench"},
		"short history":       {func(_ *Observed, q *Request) { q.History = 1 }, "HistoryTooShort"},
		"confidential":        {func(o *Observed, _ *Request) { o.Instance.SecurityType = "ConfidentialVM" }, "ConfidentialDisk"},
		"denied": {func(o *Observed, _ *Request) { o.DeniedAzure = []string{"a"}; o.DeniedCluster = []string{"b"} },
			"AzureDenied ClusterDenied"},
		"fitting definition":  {definition(func(*fleet.Definition) {}), ""},
		"generation":          {definition(func(d *fleet.Definition) { d.Generation = "V1" }), "DefinitionMismatch"},
		"architecture":        {definition(func(d *fleet.Definition) { d.Architecture = "Arm64" }), "DefinitionMismatch"},
		"security":            {definition(func(d *fleet.Definition) { d.SecurityType = "TrustedLaunch" }), "DefinitionMismatch"},
		"security, supported": {definition(func(d *fleet.Definition) { d.SecurityType = "TrustedLaunchSupported" }), ""},
		"specialized":         {definition(func(d *fleet.Definition) { d.OSState = "Specialized" }), "DefinitionMismatch"},
		"NVMe": {func(o *Observed, q *Request) {
			definition(func(*fleet.Definition) {})(o, q)
			o.Pool.Model.NVMe = true
		}, "DefinitionMismatch"},
		"a size with NVMe alone": {func(o *Observed, q *Request) {
			definition(func(*fleet.Definition) {})(o, q)
			o.Size = &fleet.SizeInfo{Architecture: "x64", Controllers: []string{"NVMe"}}
		}, "DefinitionMismatch"},
		"a size with both": {func(o *Observed, q *Request) {
			definition(func(*fleet.Definition) {})(o, q)
			o.Size = &fleet.SizeInfo{Architecture: "x64", Controllers: []string{"SCSI", "NVMe"}}
		}, ""},
		"extension needed": {func(o *Observed, _ *Request) {
			o.Pool.Model.Extensions = []fleet.Extension{{Name: "cse", Type: "CustomScript"}, {Name: "x", After: []string{"cse"}}}
		}, "ExtensionNeeded"},
		"four at once": {func(o *Observed, _ *Request) {
			o.Pool.UpgradeMode, o.Pool.Model.EphemeralOS, o.Donor.Ready = fleet.Automatic, true, false
			o.DeniedAzure = []string{"x"}
		}, "AutomaticUpgrade AzureDenied EphemeralDisk NodeNotReady"},
	} {
		o, q := good(), options()
		c.change(&o, &q)
		problems := CaptureProblems(o, q, ResumePlan{})
		if got := strings.Join(codes(problems), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		for _, p := range problems {
			if p.WayOut == "" || p.On == "" || p.What == "" {
				t.Errorf("%s: %+v leaves something out", name, p)
			}
		}
	}
}

type textError string

func (e textError) Error() string { return string(e) }

func TestCourse(t *testing.T) {
	n := NamesOf(pool, "2026.11.21")
	snapshot := func(id fleet.ResourceID, built string, tags ...string) *fleet.Snapshot {
		s := &fleet.Snapshot{ID: id, ProvisioningState: Succeeded, Tags: map[string]string{
			fleet.TagCapture: "old", fleet.TagBuiltFrom: "pool1000000", fleet.TagBuiltAt: built,
		}}
		for _, k := range tags {
			s.Tags[k] = "old"
		}
		return s
	}
	model := func(image fleet.ImageReference) func(o *Observed, q *Request) {
		return func(o *Observed, _ *Request) {
			o.Versions = []fleet.ImageVersion{ver("2026.11.21", 0, Succeeded), ver("2026.11.22", 1, Succeeded), ver("2026.11.20", -1, Succeeded)}
			o.Pool.Model.Image = image
		}
	}
	const today, yesterday = "2026-11-21 08:00:00.000000", "2026-11-20 23:59:59.000000"
	for name, c := range map[string]struct {
		change func(o *Observed, q *Request)
		start  ResumePoint
		code   string
	}{
		"nothing there": {func(*Observed, *Request) {}, AtDonor, ""},
		"version": {func(o *Observed, _ *Request) { o.Versions = []fleet.ImageVersion{ver("2026.11.21", 0, Succeeded)} }, AtVersion,
			""},
		"version, creating": {func(o *Observed, _ *Request) { o.Versions = []fleet.ImageVersion{ver("2026.11.21", 0, Updating)} }, AtVersion, ""},
		"version, failed":   {func(o *Observed, _ *Request) { o.Versions = []fleet.ImageVersion{ver("2026.11.21", 0, Failed)} }, AtDonor, ""},
		"version, back": {func(o *Observed, _ *Request) {
			o.Versions = []fleet.ImageVersion{ver("2026.11.21", 0, Succeeded, fleet.TagRolledBack)}
		}, AtVersion, "RolledBack"},
		"yesterday's version": {func(o *Observed, _ *Request) { o.Versions = []fleet.ImageVersion{ver("2026.11.20", -1, Succeeded)} }, AtDonor,
			""},
		"older version":       {model(fleet.ImageReference{ID: ver("2026.11.22", 1, Succeeded).ID}), AtVersion, "OlderVersion"},
		"older by latest":     {model(latest("")), AtVersion, "OlderVersion"},
		"newer version":       {model(fleet.ImageReference{ID: ver("2026.11.20", -1, Succeeded).ID}), AtVersion, ""},
		"the model's version": {model(fleet.ImageReference{ID: ver("2026.11.21", 0, Succeeded).ID}), AtVersion, ""},
		"foreign version": {func(o *Observed, _ *Request) {
			v := ver("2026.11.21", 0, Succeeded)
			v.Tags = nil
			o.Versions = []fleet.ImageVersion{v}
		}, AtVersion, "ForeignVersion"},
		"snapshot":        {func(o *Observed, _ *Request) { o.Snapshot = snapshot(n.Snapshot, today) }, AtSnapshot, ""},
		"yesterday's":     {func(o *Observed, _ *Request) { o.Snapshot = snapshot(n.Snapshot, yesterday) }, AtDonor, ""},
		"snapshot, again": {func(o *Observed, q *Request) { o.Snapshot = snapshot(n.Snapshot, today); q.Again = true }, AtDonor, ""},
		"of this capture, yesterday's": {func(o *Observed, q *Request) {
			o.Snapshot, q.Again = snapshot(n.Snapshot, yesterday), true
			o.Snapshot.Tags[fleet.TagCapture] = "own"
		}, AtSnapshot, ""},
		"of a node in service": {func(o *Observed, _ *Request) { o.Snapshot = snapshot(n.Snapshot, today, fleet.TagOnline) }, AtDonor, ""},
		"generalised, of a node in service": {func(o *Observed, _ *Request) {
			o.Generalized = snapshot(n.Generalized, today, fleet.TagGeneralized, fleet.TagOnline)
		}, AtDonor, ""},
		"of a node in service, online": {func(o *Observed, q *Request) {
			o.Snapshot, q.Online = snapshot(n.Snapshot, today, fleet.TagOnline), true
		}, AtSnapshot, ""},
		"of another node":  {func(o *Observed, q *Request) { o.Snapshot = snapshot(n.Snapshot, today); q.Node = "other" }, AtDonor, ""},
		"foreign snapshot": {func(o *Observed, _ *Request) { o.Snapshot = &fleet.Snapshot{ID: n.Snapshot} }, AtDonor, "ForeignSnapshot"},
		"not generalised":  {func(o *Observed, _ *Request) { o.Generalized = snapshot(n.Generalized, today) }, AtDonor, ""},
		"generalised": {func(o *Observed, _ *Request) { o.Generalized = snapshot(n.Generalized, today, fleet.TagGeneralized) },
			AtGeneralized, ""},
		"generalised, tuned": {func(o *Observed, _ *Request) {
			o.Generalized = snapshot(n.Generalized, today, fleet.TagGeneralized, fleet.TagTuned)
		}, AtDonor, ""},
		"generalised, to be tuned": {func(o *Observed, q *Request) {
			o.Generalized, q.Tune = snapshot(n.Generalized, today, fleet.TagGeneralized), []string{"x"}
		}, AtDonor, ""},
		"foreign disk": {func(o *Observed, _ *Request) { o.WorkDisk = &fleet.Disk{ID: n.WorkDisk} }, AtDonor, "ForeignDisk"},
	} {
		o, q := good(), options()
		c.change(&o, &q)
		got := Resume(o, n, q, noon, "own")
		if got.From != c.start || strings.Join(codes(got.Problems), " ") != c.code {
			t.Errorf("%s: starts at %d with %v; want %d with %q", name, got.From, codes(got.Problems), c.start, c.code)
		}
	}
}

func TestReturnTo(t *testing.T) {
	versions := []fleet.ImageVersion{
		ver("2026.11.19", -2, Succeeded), ver("2026.11.20", -1, Succeeded), ver("2026.11.21", 0, Succeeded),
		ver("2026.1120.100000", -1, Failed), ver("2026.11.18", -3, Succeeded, fleet.TagRolledBack),
		ver("2026.1.2", -1, Succeeded, fleet.TagPublished), ver("2026.1.3", 1, Succeeded, fleet.TagPublished),
		ver("2026.1.9", -1, Succeeded, fleet.TagNotLive, fleet.TagPublished),
	}
	at := func(name string) fleet.Pool {
		return fleet.Pool{ID: pool, Model: fleet.Model{Image: fleet.ImageReference{ID: DefinitionOf(pool).Child("versions", name)}}}
	}
	upper := at("2026.11.20")
	upper.Model.Image.ID = fleet.ResourceID(strings.ToUpper(string(upper.Model.Image.ID)))
	for name, c := range map[string]struct {
		pool             fleet.Pool
		to, want, tagged string
		untag, nothing   bool
		code             string
	}{
		"previous":            {at("2026.11.21"), "", "2026.11.20", "2026.11.21", false, false, ""},
		"by name":             {at("2026.11.21"), "2026.11.19", "2026.11.19", "2026.11.21", false, false, ""},
		"forward":             {at("2026.11.19"), "2026.11.21", "2026.11.21", "", false, false, ""},
		"there already":       {at("2026.11.20"), "2026.11.20", "2026.11.20", "", false, true, ""},
		"in capitals":         {upper, "2026.11.20", "2026.11.20", "", false, true, ""},
		"published by name":   {at("2026.11.21"), "2026.1.3", "2026.1.3", "", true, false, ""},
		"never live, by name": {at("2026.11.21"), "2026.1.9", "2026.1.9", "2026.11.21", true, false, ""},
		"from never live":     {at("2026.1.9"), "", "2026.11.19", "2026.1.9", false, false, ""},
		"never live, forward": {at("2026.1.9"), "2026.11.21", "2026.11.21", "2026.1.9", false, false, ""},
		"never live, again":   {at("2026.1.9"), "2026.1.9", "2026.1.9", "", true, false, ""},
		"wanted again":        {at("2026.11.21"), "2026.11.18", "2026.11.18", "2026.11.21", true, false, ""},
		"none older":          {at("2026.11.19"), "previous", "", "", false, false, "NoPrevious"},
		"no such":             {at("2026.11.21"), "1.2.3", "", "", false, false, "NoVersion"},
		"never recorded":      {at("2026.11.21"), ToOriginal, "", "", false, false, "NoOriginal"},
		"failed":              {at("2026.11.21"), "2026.1120.100000", "", "", false, false, "VersionNotReady"},
		"from a marketplace":  {fleet.Pool{ID: pool}, "", "2026.11.21", "", false, false, ""},
		"from a definition": {fleet.Pool{ID: pool, Model: fleet.Model{Image: latest("")}}, Previous, "2026.11.20", "2026.11.21", false, false,
			""},
		"pins the latest": {fleet.Pool{ID: pool, Model: fleet.Model{Image: latest("")}}, "2026.11.21", "2026.11.21", "", false, false, ""},
	} {
		r, problems := ReturnTo(versions, c.pool, nil, c.to)
		if r.To.Name() != c.want || r.TagFrom.Name() != c.tagged || r.Untag != c.untag || r.NothingToDo != c.nothing ||
			strings.Join(codes(problems), " ") != c.code {
			t.Errorf("%s: %+v, %v", name, r, problems)
		}
	}

	// kamino's vmss-prototype was there before Ortet: its versions have no tag of ours, and it records nothing.
	kamino := ver("2026.11.22", 1, Succeeded, fleet.TagBuiltFrom)
	delete(kamino.Tags, fleet.TagCapture)
	if _, problems := ReturnTo([]fleet.ImageVersion{kamino}, at("2026.11.22"), nil, ToOriginal); len(problems) != 1 ||
		!strings.Contains(problems[0].What, "as after kamino's vmss-prototype") || strings.Contains(problems[0].What, "earlier release") {
		t.Errorf("a pool that was kamino's: %+v", problems)
	}

	marketplace := &Original{}
	if r, problems := ReturnTo(versions, fleet.Pool{ID: pool}, marketplace, Previous); strings.Join(codes(problems), " ") != "NoPrevious" {
		t.Errorf("a model that is as before the first capture goes forward: %+v", r)
	}
	if r, problems := ReturnTo(versions, at("2026.1.3"), marketplace, ""); len(problems) > 0 || r.To.Name() != "2026.11.21" {
		t.Errorf("from a version that another tool made live: %+v, %v", r, problems)
	}
	if r, problems := ReturnTo(versions[5:], at("2026.1.3"), marketplace, ""); len(problems) > 0 || !r.ToOriginal {
		t.Errorf("among versions that were only published: %+v, %v", r, problems)
	}
	if r, problems := ReturnTo(versions[5:], fleet.Pool{ID: pool}, nil, ""); strings.Join(codes(problems), " ") != "NoPrevious" {
		t.Errorf("to a version that never was live: %+v", r)
	}
}

func TestWorkbench(t *testing.T) {
	donor := fleet.Node{Name: "d", Architecture: "amd64", ProviderID: "azure://" + strings.ToLower(string(pool)) + "/virtualMachines/0"}
	fit := fleet.Node{Name: "n", OS: "linux", Architecture: "amd64", Ready: true, ProviderID: "azure://" +
		string(pool.Child("virtualMachines", "1"))}
	for name, c := range map[string]struct {
		change func(n *fleet.Node)
		want   string
	}{
		"fits":      {func(*fleet.Node) {}, ""},
		"donor":     {func(n *fleet.Node) { n.Name = "d" }, "is the donor"},
		"not ready": {func(n *fleet.Node) { n.Ready = false }, "is not Ready"},
		"arm":       {func(n *fleet.Node) { n.Architecture = "arm64" }, "has another architecture"},
		"cordoned":  {func(n *fleet.Node) { n.Unschedulable = true }, "is cordoned"},
		"captured":  {func(n *fleet.Node) { n.Annotations = map[string]string{fleet.AnnotationCapture: "x"} }, "is being captured"},
		"its own": {func(n *fleet.Node) {
			n.Annotations = map[string]string{fleet.AnnotationWorkbench: strings.ToUpper(string(pool))}
		}, ""},
		"another's": {func(n *fleet.Node) {
			n.Annotations = map[string]string{fleet.AnnotationWorkbench: "x"}
		}, "is another capture's workbench"},
		"reboots":      {func(n *fleet.Node) { n.Annotations = map[string]string{fleet.AnnotationKuredReboot: "x"} }, "is about to reboot"},
		"not in Azure": {func(n *fleet.Node) { n.ProviderID = "k3s://x" }, "is no virtual machine of Azure"},
	} {
		n := fit
		c.change(&n)
		if got := CannotServe(donor, n, pool, true); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	ranked := []Candidate{{Node: fleet.Node{Name: "alone"}}, {Node: fleet.Node{Name: "another"}, Pool: pool + "2"}, {Node: fit, Pool: fleet.ResourceID(strings.ToUpper(string(pool)))}}
	RankWorkbenches(donor, pool, ranked)
	if order := ranked[0].Node.Name + " " + ranked[1].Node.Name + " " + ranked[2].Node.Name; order != "n another alone" {
		t.Errorf("workbenches are ranked %q", order)
	}
	i := fleet.Instance{Power: fleet.PowerRunning, Zone: "1", DataDisks: []fleet.AttachedDisk{{LUN: 3}}}
	if lun, why := BenchLUN(fleet.Instance{Zone: "1"}, i, fleet.SizeInfo{MaxDataDisks: 4}); lun != 2 || why != "" {
		t.Errorf("LUN %d, %q", lun, why)
	}
	for _, bad := range []struct {
		donor fleet.Instance
		size  fleet.SizeInfo
	}{{fleet.Instance{Zone: "2"}, fleet.SizeInfo{MaxDataDisks: 4}}, {fleet.Instance{Zone: "1"}, fleet.SizeInfo{MaxDataDisks: 1}}} {
		if _, why := BenchLUN(bad.donor, i, bad.size); why == "" {
			t.Errorf("%+v is taken", bad)
		}
	}
}

package capture

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/donor"
	"github.com/ortet/ortet/internal/image/capture/model"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/journal"
)

type clockOf struct{ azure.Cloud }

func (clockOf) Now() time.Time { return time.Unix(9, 0) }

// TestBegin: what a run that begins takes from the record before and from what is there, and what a resumed
// one keeps of its own.
func TestBegin(t *testing.T) {
	const image = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/ortet/images/pool1/versions/2026.1.2")
	tags := map[string]string{fleet.TagCapture: "c", fleet.TagBuiltAt: "then", fleet.TagOnline: "flushed", fleet.TagCustomData: "abc", fleet.TagSecrets: "none", fleet.TagBuiltFrom: "m", fleet.TagDevices: "S nvidia.com/gpu=4"}
	unjudged := map[string]string{fleet.TagCapture: "c", fleet.TagCanary: plan.Unjudged}
	version := &fleet.ImageVersion{ID: image, ProvisioningState: plan.Succeeded, Tags: tags}
	grown := plan.Growth{Version: image, Wanted: 1, Done: true, Nodes: []plan.NewNode{{Instance: "a"}}}
	open := func(s *state) { // what a run had
		s.Growth, s.LastCustomData, s.LearnsOriginal, s.Key, s.BuiltAt, s.Stopped, s.DonorGone, s.BuiltFrom = grown, "last", true, []byte("key"), "x", true, true, "x"
		s.Bench, s.BootID, s.CustomData, s.Quarantine, s.Pod, s.NoCanary = workbench{Node: "old"}, "boot", "own", "gate", "pod", "no canary"
	}
	// What is asked of the state, as text.
	words := func(all ...any) string { return strings.TrimSuffix(fmt.Sprintln(all...), "\n") }
	growth := func(s state) string {
		return words(s.Growth.Wanted, s.Growth.Done, len(s.Growth.Nodes), s.Growth.Adds, s.Growth.Capacity)
	}
	own := func(s state) string {
		return words(s.LastCustomData, s.LearnsOriginal, string(s.Key) == "key", s.BootID, s.CustomData, s.Quarantine, s.Pod, s.NoCanary)
	}
	run := func(s state) string { return words(s.BuiltAt, s.BuiltFrom, s.Stopped, s.DonorGone, s.Bench.Node) }
	copied := func(s state) string {
		return words(s.BuiltAt, s.Online, s.CustomData, s.Secrets, s.NoCustomData, s.BuiltFrom, s.ModelChanged)
	}
	devices := func(s state) string { return string(s.Devices) }
	withGPUs := func(n int64) plan.Observed {
		return plan.Observed{Instance: &fleet.Instance{Size: "S"}, Donor: &fleet.Node{Devices: map[string]int64{"nvidia.com/gpu": n}}, Snapshot: &fleet.Snapshot{Tags: tags}}
	}
	bench := func(s state) string { return fmt.Sprintf("%+v", s.Bench) }
	whole := func(s state) string {
		return words(s.Pool.Name(), s.Location, s.Instance, s.UID, s.VMID, s.Addresses, s.Replicas, s.ToDelete, len(s.Key), s.Definition.Tags[fleet.TagNamespace], s.Encryption.Set)
	}
	for name, c := range map[string]struct {
		open    bool
		had     func(*state) // in an open record
		request plan.Request
		o       plan.Observed
		resume  plan.ResumePlan
		of      func(state) string
		want    string
	}{
		"a resumed run keeps its own":               {open: true, had: open, of: own, want: "last true true boot own gate pod no canary"},
		"a resumed run observes again":              {open: true, had: open, of: run, want: "  false false "},
		"a new run has nothing of an earlier":       {had: open, of: run, want: "  false false "},
		"of the record before":                      {of: func(s state) string { return s.LastCustomData }, want: "before"},
		"growth of a version that is there":         {request: plan.Request{NewNodes: 1}, resume: plan.ResumePlan{From: plan.AtVersion, Version: version}, of: growth, want: "1 true 1 0 0"},
		"more of it":                                {request: plan.Request{NewNodes: 2}, resume: plan.ResumePlan{From: plan.AtVersion, Version: version}, of: growth, want: "2 false 1 0 0"},
		"growth of a version that was deleted":      {request: plan.Request{NewNodes: 1}, of: growth, want: "1 false 0 0 0"},
		"growth that is not asked for":              {resume: plan.ResumePlan{From: plan.AtVersion, Version: version}, of: growth, want: "1 true 1 0 0"},
		"growth of a resumed run":                   {open: true, had: open, request: plan.Request{NewNodes: 5}, of: growth, want: "1 true 1 0 0"},
		"growth of an earlier release":              {open: true, had: func(s *state) { s.GrowTo = 7 }, request: plan.Request{NewNodes: 2}, of: growth, want: "2 false 0 2 7"},
		"a snapshot of today":                       {o: plan.Observed{Snapshot: &fleet.Snapshot{Tags: tags}}, resume: plan.ResumePlan{From: plan.AtSnapshot}, of: copied, want: "then flushed   false  false"},
		"a snapshot that does not count":            {o: plan.Observed{Snapshot: &fleet.Snapshot{Tags: tags}, Generalized: &fleet.Snapshot{Tags: tags}}, of: copied, want: "    false  false"},
		"a generalised snapshot":                    {o: plan.Observed{Generalized: &fleet.Snapshot{Tags: tags}}, resume: plan.ResumePlan{From: plan.AtGeneralized}, of: copied, want: "then flushed abc none false  false"},
		"one whose nodes get no customData":         {o: plan.Observed{Generalized: &fleet.Snapshot{Tags: unjudged}}, resume: plan.ResumePlan{From: plan.AtGeneralized}, of: copied, want: "    true  false"},
		"one of which that is not known":            {o: plan.Observed{Generalized: &fleet.Snapshot{Tags: map[string]string{fleet.TagCapture: "c"}}}, resume: plan.ResumePlan{From: plan.AtGeneralized}, of: copied, want: "    false  false"},
		"a version":                                 {resume: plan.ResumePlan{From: plan.AtVersion, Version: version}, of: copied, want: "  abc  false m false"},
		"a version that the model names":            {o: plan.Observed{Pool: &fleet.Pool{Model: fleet.Model{Image: fleet.ImageReference{ID: image}}}}, resume: plan.ResumePlan{From: plan.AtVersion, Version: version}, of: copied, want: "  abc  false m true"},
		"a name that the model has, and no version": {o: plan.Observed{Pool: &fleet.Pool{Model: fleet.Model{Image: fleet.ImageReference{ID: image}}}}, of: copied, want: "    false  false"},
		"the donor's GPUs":                          {o: withGPUs(2), of: devices, want: "S nvidia.com/gpu=2"},
		"the GPUs of a donor that booted since":     {open: true, had: func(s *state) { s.Devices = "S nvidia.com/gpu=2" }, o: withGPUs(0), of: devices, want: "S nvidia.com/gpu=2"},
		"the GPUs as the snapshot has them":         {o: withGPUs(0), resume: plan.ResumePlan{From: plan.AtSnapshot}, of: devices, want: "S nvidia.com/gpu=4"},
		"the GPUs as a version has them":            {o: withGPUs(1), resume: plan.ResumePlan{From: plan.AtVersion, Version: version}, of: devices, want: "S nvidia.com/gpu=4"},
		"the workbench": {o: plan.Observed{Workbench: &plan.Workbench{Node: fleet.Node{Name: "w", UID: "u", BootID: "b"}, Instance: fleet.Instance{ID: "/i", Pool: "/p", VMID: "v", Zone: "2"}, LUN: 3}}, of: bench,
			want: "{Node:w Pool:/p Instance:/i VMID:v UID:u Zone:2 LUN:3 BootID:b}"},
		"the pool and its donor": {request: plan.Request{Replicas: 4}, o: plan.Observed{Disk: &fleet.Disk{}, Instance: &fleet.Instance{VMID: "v"}, Donor: &fleet.Node{UID: "u", Addresses: []string{"10.0.0.1"}}, InstanceID: benchSets + "POOL1/virtualMachines/1",
			Pool: &fleet.Pool{Location: "here", Model: fleet.Model{Extensions: []fleet.Extension{{Name: "cse", Type: "CustomScript"}}}}}, of: whole,
			want: "pool1 here " + benchSets + "pool1/virtualMachines/1 u v [10.0.0.1] 4 [cse] 32 ns "},
	} {
		x := (&Service{Config: Config{Cloud: clockOf{}, Namespace: "ns"}}).capture(Request{Node: "n"})
		x.req = c.request
		if c.had != nil {
			x.set(c.had)
		}
		last, err := json.Marshal(plan.Inherited{LastCustomData: "before", Growth: grown})
		if err != nil {
			t.Fatal(err)
		}
		r := journal.Record{Kind: Kind, Name: "c", State: last}
		if !c.open {
			r.Ended = &journal.End{}
			x.set(func(s *state) { *s = state{} }) // as decide does
		}
		if c.o.Pool == nil {
			c.o.Pool = &fleet.Pool{}
		}
		if c.o.Donor == nil {
			c.o.Donor = &fleet.Node{}
		}
		c.o.Pool.ID, c.o.Pool.Name = benchSets+"pool1", "pool1"
		x.begin(r, c.o, c.resume, plan.Names{Version: image, Definition: image.Parent()})
		if got := c.of(x.get()); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestRecordKeeps: a closed record has no key, and what a rollback left unfinished goes on until it is done.
func TestRecordKeeps(t *testing.T) {
	x := (&Service{}).capture(Request{Node: "n"})
	x.set(func(s *state) { s.Key = []byte("key") })
	if x.State(true).(state).Key != nil || x.State(false).(state).Key == nil || x.get().Key == nil {
		t.Error("the key that opens what the pod sealed")
	}
	unfinished := `{"lastCustomData":"abc","unfinished":{"name":"earlier"}}`
	rolled := `{"lastCustomData":"abc"}`
	for name, c := range map[string]struct {
		kind, state, request string
		model                journal.Step
		exit                 int
		open                 bool
		want                 string
	}{
		"of a capture":                     {kind: Kind, state: unfinished, want: "earlier  false"},
		"of a rollback that is done":       {kind: "rollback", state: unfinished},
		"of one that changed nothing":      {kind: "rollback", state: unfinished, exit: 1, want: "earlier  false"},
		"of one that changed the model":    {kind: "rollback", state: rolled, request: `{"to":"v1"}`, exit: 4, model: journal.Step{State: journal.Done}, want: "run v1 true"},
		"of one that may have changed it":  {kind: "rollback", state: rolled, request: `{"to":"v1"}`, exit: 4, model: journal.Step{State: journal.Failed, Change: "patch"}, want: "run v1 false"},
		"of one that is open":              {kind: "rollback", state: rolled, request: `{"to":"v1"}`, open: true, model: journal.Step{State: journal.Done}},
		"of one whose request is not read": {kind: "rollback", state: rolled, request: `{"to":1}`, exit: 4, model: journal.Step{State: journal.Done}},
	} {
		r := journal.Record{Kind: c.kind, Name: "run", State: json.RawMessage(c.state), Request: json.RawMessage(c.request), Steps: map[string]journal.Step{model.StepModel: c.model}, Ended: &journal.End{Exit: c.exit}}
		if c.open {
			r.Ended = nil
		}
		got := ""
		i := Inherit(r)
		if u := i.Unfinished; u != nil {
			got = fmt.Sprint(u.Name, " ", u.Asked, " ", u.Patched)
		}
		if got != c.want || i.LastCustomData != "abc" {
			t.Errorf("%s: %q, %+v", name, got, i)
		}
	}
}

// TestImageTags: a version says whose it is, of what it was made, and whether its clones are still to be judged.
func TestImageTags(t *testing.T) {
	for name, c := range map[string]struct {
		request plan.Request
		state   state
		want    string
	}{
		"without a canary": {state: state{BuiltAt: "then"}, want: "BuiltAt:then BuiltFrom:n ortet.io_capture:c ortet.io_created-by:ortet 1.0 ortet.io_generalized:c ortet.io_reason:prototype of pool1 from node n"},
		"with one":         {request: plan.Request{Canary: 1}, want: "BuiltFrom:n ortet.io_canary:unjudged ortet.io_capture:c ortet.io_created-by:ortet 1.0 ortet.io_generalized:c ortet.io_reason:prototype of pool1 from node n"},
		"one is left out": {request: plan.Request{Canary: 1}, state: func() (s state) { s.NoCanary = "why"; return s }(),
			want: "BuiltFrom:n ortet.io_capture:c ortet.io_created-by:ortet 1.0 ortet.io_generalized:c ortet.io_reason:prototype of pool1 from node n"},
		"all that is known": {state: func() (s state) {
			s.CustomData, s.Secrets, s.BuiltFrom, s.Taken, s.Devices = "abc", "none", "m", donor.Taken{Online: "flushed"}, "S nvidia.com/gpu=1"
			return s
		}(), want: "BuiltFrom:m ortet.io_capture:c ortet.io_created-by:ortet 1.0 ortet.io_custom-data:abc ortet.io_devices:S nvidia.com/gpu=1 ortet.io_generalized:c ortet.io_online:flushed ortet.io_reason:prototype of pool1 from node n ortet.io_secrets:none"},
	} {
		x := (&Service{Config: Config{Version: "1.0"}}).capture(Request{Node: "n"})
		c.state.Names.Definition = "/images/pool1"
		c.request.Node = "n"
		x.req, x.name = c.request, "c"
		x.set(func(s *state) { *s = c.state })
		if got := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(x.imageTags()), "map["), "]"); got != c.want {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

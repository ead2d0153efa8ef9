package engine

import (
	"cmp"
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/wire"
)

type clusterProc struct{ *proc }

func copyNode(n *fleet.Node) fleet.Node {
	c := *n
	c.Annotations, c.Labels = maps.Clone(n.Annotations), maps.Clone(n.Labels)
	return c
}

func (p clusterProc) Node(ctx context.Context, name string) (fleet.Node, error) {
	return read(ctx, p.proc, fleet.ResourceID("node "+name), func() (fleet.Node, bool) {
		n, ok := p.w.nodes[name]
		if !ok {
			return fleet.Node{}, false
		}
		return copyNode(n), true
	})
}

func (p clusterProc) Nodes(ctx context.Context) iter.Seq2[fleet.Node, error] {
	return func(yield func(fleet.Node, error) bool) {
		all, err := read(ctx, p.proc, "", func() (all []fleet.Node, ok bool) {
			for _, k := range slices.Sorted(maps.Keys(p.w.nodes)) {
				all = append(all, copyNode(p.w.nodes[k]))
			}
			return all, true
		})
		if err != nil {
			yield(fleet.Node{}, err)
		}
		for _, n := range all {
			if !yield(n, nil) {
				return
			}
		}
	}
}

func (p clusterProc) Annotate(ctx context.Context, node string, annotations map[string]*string) error {
	return p.act(ctx, "annotate "+node, func() error {
		n, ok := p.w.nodes[node]
		if !ok {
			return missing("annotate", fleet.ResourceID(node))
		}
		set(n.Annotations, annotations)
		return nil
	})
}

func set(on map[string]string, annotations map[string]*string) {
	for k, v := range annotations {
		if v == nil {
			delete(on, k)
		} else {
			on[k] = *v
		}
	}
}

func (p clusterProc) SetUnschedulable(ctx context.Context, node string, unschedulable bool) error {
	return p.act(ctx, "cordon or uncordon "+node, func() error {
		n, ok := p.w.nodes[node]
		if !ok {
			return missing("cordon", fleet.ResourceID(node))
		}
		n.Unschedulable = unschedulable
		return nil
	})
}

func (p clusterProc) Machine(ctx context.Context, _ fleet.Node) (annotations map[string]string, known bool, err error) {
	annotations, err = read(ctx, p.proc, "machine", func() (map[string]string, bool) {
		known = p.w.machine != nil
		return maps.Clone(p.w.machine), true
	})
	return annotations, known, err
}

func (p clusterProc) AnnotateMachine(ctx context.Context, _ fleet.Node, annotations map[string]*string) (before map[string]*string, known bool, err error) {
	err = p.act(ctx, "annotate machine", func() error {
		if known = p.w.machine != nil; !known {
			return nil
		}
		before = map[string]*string{}
		for k := range annotations {
			if v, ok := p.w.machine[k]; ok {
				before[k] = &v
			} else {
				before[k] = nil
			}
		}
		set(p.w.machine, annotations)
		return nil
	})
	return before, known, err
}

func (p clusterProc) Drain(ctx context.Context, node string, o cluster.DrainOptions, report func(cluster.DrainEvent)) error {
	err := p.act(ctx, "drain "+node, func() error {
		if !p.w.nodes[node].Unschedulable {
			return errors.New("drained before it was cordoned")
		}
		p.w.drained++
		return nil
	})
	if err != nil {
		return err
	}
	report(cluster.DrainEvent{Pod: "default/a", What: "evicting", Left: 1})
	if p.w.blocked {
		if err := sleep(ctx, o.Deadline); err != nil {
			return err
		}
		return &fleet.Error{Op: "drain", Resource: "node " + node, Kind: fleet.KindBlocked, Err: &cluster.BlockedError{
			Node: node, Pods: []cluster.BlockedPod{{Pod: "default/a", Budget: "default/keep-a"}},
		}}
	}
	return sleep(ctx, 5*time.Second)
}

func (p clusterProc) Obstacles(ctx context.Context, _ string, _ []string) ([]cluster.BlockedPod, error) {
	return read(ctx, p.proc, "", func() ([]cluster.BlockedPod, bool) { return p.w.obstacles, true })
}

func (p clusterProc) StartJob(ctx context.Context, job cluster.Job) error {
	return p.act(ctx, "start job", func() error {
		w := p.w
		if w.pods[job.Name] != nil {
			return nil
		}
		q := &pod{command: job.Command}
		w.pods[job.Name] = q
		if slices.Contains(job.Command, "--inspect") {
			w.in(time.Second, func() { w.inspect(q, job) })
			return nil
		}
		w.jobs++
		w.in(time.Minute, func() { w.work(q, job) })
		return nil
	})
}

func flagOf(command []string, name string) string {
	for i, a := range command {
		if a == name && i+1 < len(command) {
			return command[i+1]
		}
	}
	return ""
}

// inspect is what the pod on the donor does: it looks.
func (w *world) inspect(q *pod, job cluster.Job) {
	if w.pods[job.Name] != q {
		return
	}
	report := wire.GeneralizeReport{Capture: flagOf(q.command, "--capture"), Donor: flagOf(q.command, "--donor"), Outcome: wire.Generalized, DryRun: true}
	report.Joins = []string{"/etc/kubernetes/bootstrap-kubelet.conf"}
	switch {
	case w.outcome == "preserve":
		report.Outcome, report.Message = wire.DiskRefused, "/etc/cloud/cloud.cfg sets preserve_hostname: true"
	case w.outcome == "visible" && !slices.Contains(q.command, "--accept-pool-credentials"):
		report.Outcome = wire.SecretsFound
		report.Findings = []wire.SecretFinding{{Path: "/etc/kubernetes/azure.json", Class: wire.PoolCredential, Rule: "azure-client-secret"}}
	case w.outcome == "others":
		otherSecrets(q.command, &report)
	case w.outcome == "failed":
		report.Outcome, report.Message = wire.GeneralizeFailed, "no memory"
	}
	q.done = true
	q.output, _ = json.Marshal(wire.GeneralizeLine{Report: &report})
}

// work is what the pod does to the disk.
func (w *world) work(q *pod, job cluster.Job) {
	if w.pods[job.Name] != q {
		return
	}
	report := wire.GeneralizeReport{Capture: flagOf(q.command, "--capture"), Donor: donorName, Outcome: wire.Generalized, Removed: 10, OS: "Debian"}
	var disk *disk
	for _, i := range w.instances {
		if i.HostName != job.Node {
			continue
		}
		for _, d := range i.DataDisks {
			disk = w.disks[low(d.Disk)]
		}
	}
	q.done = true
	switch {
	case w.onWork != nil:
		if err := w.onWork(job.Node); err != nil {
			report.Outcome, report.Message = wire.DiskRefused, err.Error()
		} else {
			report.Joins = []string{"/etc/kubernetes/bootstrap-kubelet.conf"}
		}
	case w.outcome == "lost":
		w.outcome = ""
		q.exit, q.why = 137, "OOMKilled"
		return
	case disk == nil:
		report.Outcome, report.Message = wire.DiskRefused, "there is no disk"
	case disk.generalized:
		report.Outcome, report.Message = wire.DiskRefused, "it is generalised already"
	case w.outcome == "secrets":
		report.Outcome = wire.SecretsFound
		report.Findings = []wire.SecretFinding{{Path: "/etc/kubernetes/azure.json", Class: wire.PoolCredential, Rule: "azure-json"}}
	default:
		disk.generalized = true
		if w.outcome != "nojoin" {
			report.Joins = []string{"/etc/kubernetes/bootstrap-kubelet.conf"}
		}
		raw, err := base64.StdEncoding.DecodeString(flagOf(q.command, "--seal-to"))
		if err != nil {
			panic(err)
		}
		key, err := ecdh.X25519().NewPublicKey(raw)
		if err != nil {
			panic(err)
		}
		public, err := hpke.NewDHKEMPublicKey(key)
		if err != nil {
			panic(err)
		}
		sealed, err := hpke.Seal(public, hpke.HKDFSHA256(), hpke.AES256GCM(), []byte("ortet.io/saved/customData/"), []byte(cmp.Or(w.cameWith, w.customData)))
		if err != nil {
			panic(err)
		}
		if custom := cmp.Or(w.cameWith, w.customData); custom != noop { // which ortet-node does not seal
			report.Saved = []wire.SealedItem{{Kind: wire.CustomData, SHA256: sha(custom), Sealed: sealed}}
		}
	}
	if w.outcome == "others" {
		otherSecrets(q.command, &report)
	}
	if report.Outcome != wire.Generalized {
		q.exit = 3
	}
	line, err := json.Marshal(wire.GeneralizeLine{Report: &report})
	if err != nil {
		panic(err)
	}
	q.output = append([]byte("a line of a log\n{\"progress\":\"working\"}\n"), append(line, '\n')...)
}

func (p clusterProc) Job(ctx context.Context, name string) (cluster.JobState, error) {
	s, err := read(ctx, p.proc, "", func() (cluster.JobState, bool) {
		q := p.w.pods[name]
		if q == nil {
			return cluster.JobState{}, true
		}
		return cluster.JobState{Exists: true, Done: q.done, ExitCode: q.exit, Why: q.why, Output: q.output}, true
	})
	return s, err
}

func (p clusterProc) DeleteJob(ctx context.Context, name string) error {
	return p.act(ctx, "delete job", func() error { delete(p.w.pods, name); return nil })
}

func (p clusterProc) ForceDeleteJob(ctx context.Context, name string) error {
	return p.DeleteJob(ctx, name)
}

func (p clusterProc) Keep(ctx context.Context, item cluster.Kept, _ func(context.Context) ([]string, error)) error {
	return p.act(ctx, "keep "+item.Kind, func() error {
		if key := item.Kind + "/" + item.SHA256; p.w.vault[key] == "" {
			p.w.vault[key] = item.Data.Reveal()
		}
		return nil
	})
}

func (p clusterProc) Kept(ctx context.Context, _ fleet.ResourceID, kind, sum string) (cluster.Kept, error) {
	return read(ctx, p.proc, "kept", func() (cluster.Kept, bool) {
		data, ok := p.w.vault[kind+"/"+sum]
		return cluster.Kept{Kind: kind, SHA256: sum, Data: fleet.NewSecret(data)}, ok
	})
}

// Hold is no boundary: it is renewed by the clock.
func (p clusterProc) Hold(ctx context.Context, name, holder string, duration time.Duration) (cluster.Holding, error) {
	leave, err := p.enter(ctx)
	if err != nil {
		return cluster.Holding{}, err
	}
	defer leave()
	p.w.calls["lease"]++
	now := time.Now()
	l := p.w.lease[name]
	took := false
	switch {
	case l == nil:
		l = &leaseState{holder: holder, since: now}
	case l.holder != holder && now.Before(l.renewed.Add(l.lasts)):
		return cluster.Holding{Holder: l.holder, Since: l.since, Renewed: l.renewed}, &fleet.Error{Op: "hold", Kind: fleet.KindHeld, Err: errors.New("held")}
	case l.holder != holder:
		took = true
		l = &leaseState{holder: holder, since: now}
	}
	l.renewed, l.lasts = now, duration
	p.w.lease[name] = l
	return cluster.Holding{Holder: holder, Since: l.since, Renewed: now, Took: took}, nil
}

func (p clusterProc) Holding(ctx context.Context, name string) (h cluster.Holding, held bool, err error) {
	leave, err := p.enter(ctx)
	if err != nil {
		return h, false, err
	}
	defer leave()
	l := p.w.lease[name]
	if l == nil {
		return h, false, nil
	}
	return cluster.Holding{Holder: l.holder, Since: l.since, Renewed: l.renewed}, true, nil
}

func (p clusterProc) Release(ctx context.Context, name, holder string) error {
	return p.act(ctx, "release", func() error {
		if l := p.w.lease[name]; l != nil && l.holder == holder {
			delete(p.w.lease, name)
		}
		return nil
	})
}

func (p clusterProc) HoldReboots(ctx context.Context, holder string, _ time.Duration) (bool, error) {
	return true, p.act(ctx, "hold reboots", func() error {
		if p.w.kured != "" && p.w.kured != holder {
			return &fleet.Error{Op: "hold reboots", Kind: fleet.KindHeld, Err: errors.New(p.w.kured)}
		}
		p.w.kured = holder
		return nil
	})
}

func (p clusterProc) ReleaseReboots(ctx context.Context, holder string) error {
	return p.act(ctx, "release reboots", func() error {
		if p.w.kured == holder {
			p.w.kured = ""
		}
		return nil
	})
}

func (p clusterProc) Denied(context.Context, []cluster.Access) ([]cluster.Access, error) {
	return nil, nil
}

func (p clusterProc) Event(context.Context, fleet.Node, bool, string, string) {}

func (p clusterProc) Journals() journal.Store { return procJournals(p) }

type procJournals struct{ *proc }

func (p procJournals) Load(ctx context.Context, pool string) (journal.Record, error) {
	leave, err := p.enter(ctx)
	if err != nil {
		return journal.Record{}, err
	}
	defer leave()
	if pool == p.w.secret {
		return journal.Record{}, &fleet.Error{Op: "read journal", Resource: pool, Kind: fleet.KindDenied}
	}
	return p.w.journals.Load(ctx, pool)
}

func (p procJournals) Save(ctx context.Context, r journal.Record) (saved journal.Record, err error) {
	if strings.Contains(string(r.Facts), "join]") {
		return saved, errors.New("customData in the clear in the journal")
	}
	err = p.act(ctx, "save journal", func() error {
		p.w.calls["journal"]++
		saved, err = p.w.journals.Save(ctx, r)
		return err
	})
	return saved, err
}

package play

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/engine"
	"github.com/ortet/ortet/internal/prototype"
)

// pointed is what a pool's new instances are made from.
type pointed struct{ image, customData string }

// pointedAt reads it from the model.
func (w *world) pointedAt() (p pointed) {
	w.azure.View(func(v *azsim.View) {
		set, ok := v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet)
		if !ok || set.Properties == nil || set.Properties.VirtualMachineProfile == nil {
			return
		}
		profile := set.Properties.VirtualMachineProfile
		if s := profile.StorageProfile; s != nil && s.ImageReference != nil {
			image := *s.ImageReference
			image.ExactVersion = nil
			text, err := json.Marshal(image)
			if err == nil {
				p.image = strings.ToLower(string(text))
			}
		}
		if o := profile.OSProfile; o != nil && o.CustomData != nil {
			p.customData = *o.CustomData
		}
	})
	return p
}

// kubeChange serves a change in Kubernetes, and judges it by what it made of the
// cluster.
func (p *process) kubeChange(r *http.Request, serve func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	w := p.w
	if strings.Contains(r.URL.Path, "/leases") {
		before := w.leaseNow()
		answer, err := serve(r)
		w.leaseWritten(p, before, w.leaseNow())
		return answer, err
	}
	if strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") {
		return p.nodeChange(r, serve)
	}
	if !strings.Contains(r.URL.Path, "/secrets") {
		return serve(r)
	}
	before, sent := w.journalNow(), ""
	if r.Method == http.MethodPut {
		sent = revisionSent(r)
	}
	answer, err := serve(r)
	if after := w.journalNow(); after.revision != before.revision {
		w.judgeJournal(p, r.Method, sent, before.revision)
		w.journalWritten(after)
	}
	return answer, err
}

// leased is the pool's Lease; renewed by true time.
type leased struct {
	holder  string
	lasts   time.Duration
	renewed time.Time
}

func (w *world) leaseNow() (l leased) {
	lease, ok := w.kube.Get("leases", namespace, kube.LeaseName(low(w.pool))).(*coordinationv1.Lease)
	if ok && lease.Spec.HolderIdentity != nil && lease.Spec.LeaseDurationSeconds != nil {
		l.holder, l.lasts = *lease.Spec.HolderIdentity, time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second
	}
	return l
}

// leaseWritten: the pool passes from one to another only where the former is dead,
// is done, or has not renewed for as long as it took the pool for, by true time.
func (w *world) leaseWritten(p *process, before, after leased) {
	w.mu.Lock()
	was := w.lease
	done := w.recorded.Ended != nil && w.recorded.Facts.Writer == before.holder
	w.lease = after
	w.lease.renewed = time.Now()
	if after.holder != "" && after.holder == before.holder && !p.owns(after.holder) {
		w.lease.renewed = was.renewed
	}
	w.mu.Unlock()
	if after.holder != "" && !p.owns(after.holder) && after.holder != before.holder {
		w.broken("%s has %s hold the pool", p.name, after.holder)
	}
	if before.holder == "" || before.holder == after.holder || p.owns(before.holder) || done {
		return
	}
	former := w.processOf(before.holder)
	if former == nil || former.over() || !time.Now().Before(was.renewed.Add(was.lasts)) || former.hasJumped() {
		return
	}
	if p.hasJumped() {
		former.rob(was.renewed.Add(was.lasts))
		return
	}
	w.broken("%s takes the pool from %s, which is at work and renewed its Lease %s ago", p.name, before.holder, time.Since(was.renewed))
}

// owns reports whether a holder's name is this process's.
func (p *process) owns(holder string) bool { return strings.HasPrefix(holder, p.name+"/") }

// over reports whether a process is dead or done.
func (p *process) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut || p.ended
}

// hasJumped reports whether its clock ever jumped, which excuses its own hold alone.
func (p *process) hasJumped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jumped
}

// rob notes that a process whose clock jumped took the pool from this one, which cannot
// know so until it has to renew its Lease.
func (p *process) rob(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.robbed = until
}

// wasRobbed reports whether it may still believe that it holds the pool.
func (p *process) wasRobbed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.robbed)
}

func (w *world) processOf(holder string) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.processes, func(p *process) bool { return p.owns(holder) }); i >= 0 {
		return w.processes[i]
	}
	return nil
}

// judgeHold: nobody changes a pool, or what is written about it, that another
// process holds, or nobody.
func (w *world) judgeHold(p *process, what string) {
	holder := w.leaseNow().holder
	if p.owns(holder) || p.hasJumped() || p.wasRobbed() {
		return
	}
	if former := w.processOf(holder); former == nil || !former.hasJumped() {
		w.broken("%s changes %s while %q holds the pool", p.name, what, holder)
	}
}

// judgeJournal: the holder of the pool writes the journal, over what it read.
func (w *world) judgeJournal(p *process, method, sent, before string) {
	if !p.wasSuspended() { // its write is made over what it read, or refused: the journal is fenced by that
		w.judgeHold(p, "the journal")
	}
	if before != "" && (method != http.MethodPut || sent != before) {
		w.broken("%s writes the journal by %s with the resourceVersion %q over %q", p.name, method, sent, before)
	}
}

// revisionSent is the resourceVersion in a request's Secret.
func revisionSent(r *http.Request) string {
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close() // it was read to its end, or err says so
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return ""
	}
	var secret corev1.Secret
	if encoded, ok := bytes.CutPrefix(body, []byte("k8s\x00")); ok { // Kubernetes' protobuf
		var envelope runtime.Unknown
		if err = envelope.Unmarshal(encoded); err == nil {
			err = secret.Unmarshal(envelope.Raw)
		}
	} else {
		err = json.Unmarshal(body, &secret)
	}
	if err != nil {
		return ""
	}
	return secret.ResourceVersion
}

// written is the journal as it is stored.
type written struct {
	revision string
	record   []byte
}

func (w *world) journalNow() (j written) {
	if secret, there := w.kube.Get("secrets", namespace, kube.JournalName(low(w.pool))).(*corev1.Secret); there {
		j = written{secret.ResourceVersion, secret.Data["record"]}
	}
	return j
}

// noted is what of the journal's record the judgement goes by.
type noted struct {
	Capture string
	Kind    string
	Ended   *struct{ Exit int }
	Facts   struct {
		Names        prototype.Names
		Return       *struct{ Original *prototype.Original }
		Writer       string
		ModelChanged bool
		Undoing      string
	}
}

// journalWritten: a record that ends with exit 1 leaves the model's image and
// customData as they were when it was opened.
func (w *world) journalWritten(now written) {
	var rec noted
	if json.Unmarshal(now.record, &rec) != nil {
		return
	}
	w.mu.Lock()
	was := w.recorded
	w.recorded = rec
	if rec.Ended != nil && was.Ended == nil {
		w.closed = time.Now()
		w.closers = append(w.closers, rec.Facts.Writer)
	}
	w.mu.Unlock()
	if rec.Ended != nil && was.Ended == nil {
		w.checkClosedAt(rec)
	}
	switch {
	case rec.Ended == nil && rec.Capture != was.Capture, rec.Ended != nil && was.Ended == nil && (rec.Ended.Exit == 0 || rec.Facts.ModelChanged):
		w.setModel0()
		if rec.Ended == nil {
			w.opened()
		}
	case rec.Ended != nil && was.Ended == nil:
		w.checkPointed("the record of " + rec.Capture + " ends with exit 1")
	}
}

// setModel0 has the model as it is now be what failures have to leave.
func (w *world) setModel0() {
	now := w.pointedAt()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pointed0 = now
}

// checkPointed: the model's image and customData are as they were when the record
// was opened, or as others set them since.
func (w *world) checkPointed(when string) {
	now := w.pointedAt()
	w.mu.Lock()
	was := w.pointed0
	gone := slices.ContainsFunc(slices.Collect(maps.Keys(w.othersGone)), func(id string) bool { return strings.Contains(was.image, `"`+id+`"`) })
	w.mu.Unlock()
	// What others deleted, nobody can point at again, nor restore what was never recorded.
	if now != was && !gone && !(now.image == was.image && w.saidUnrecorded()) {
		w.broken("%s, and the model has the image %s and the customData %q, which were %s and %q", when, now.image, now.customData, was.image, was.customData)
	}
}

// checkUnchanged: who says that nothing came of it, or that all is as it was found,
// leaves the model as it was. One who goes on may have begun to change it.
func (w *world) checkUnchanged(p *process) {
	code := engine.ExitCode(p.err)
	found := p.err != nil && strings.Contains(p.err.Error(), "as it was found") && !strings.Contains(p.err.Error(), "not as it was found") &&
		!strings.Contains(p.err.Error(), "from being as it was found")
	rec, open := w.record()
	began := open && rec.Ended == nil && rec.Intents[prototype.StepModel].Tries > 0
	if code == engine.ExitFailed || found && !began {
		w.checkPointed(p.name + " ends with: " + firstLine(p.err))
	}
}

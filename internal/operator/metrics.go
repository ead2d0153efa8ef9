package operator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	api "github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/workflow"
)

// Metrics are the operator's figures, each by the object's name. They are those of the last look.
type Metrics struct {
	success, duration                 *prometheus.GaugeVec // of runs, by kind
	out, age, quarantined, takenBack  *prometheus.GaugeVec
	rolloutStopped, stalled, outdated *prometheus.GaugeVec
	image                             *prometheus.GaugeVec // by version
	all                               []*prometheus.GaugeVec
}

// NewMetrics registers them.
func NewMetrics(to prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{}
	var err error
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ortet_pool_" + name, Help: help}, append([]string{"pool"}, labels...))
		if e := to.Register(g); e != nil {
			err = e
		}
		m.all = append(m.all, g)
		return g
	}
	m.success = gauge("last_success_timestamp_seconds", "When a run last ended well, by kind: also a Job's or a person's.", "kind")
	m.duration = gauge("run_duration_seconds", "How long the last run took, by kind.", "kind")
	m.out = gauge("nodes_out_of_service", "Nodes that a take-back cordoned, or that a rollout has begun and not ended.")
	m.outdated = gauge("nodes_outdated", "Nodes of another image than that of the model.")
	m.age = gauge("image_built_timestamp_seconds", "When the version that new nodes come from was made.")
	m.quarantined = gauge("versions_quarantined", "Versions that failed a gate, or were rolled back.")
	m.takenBack = gauge("taken_back", "1 if the last run took a version back.")
	m.rolloutStopped = gauge("rollout_stopped", "1 if the last run was a rollout that stopped at a node.")
	m.stalled = gauge("stalled", "1 if nothing goes on until somebody does what the condition Stalled says.")
	m.image = gauge("image_info", "1 for the version that new nodes come from.", "version")
	return m, err
}

// forget drops the figures of an object.
func (m *Metrics) forget(pool string) {
	if m != nil {
		for _, g := range m.all {
			g.DeletePartialMatch(prometheus.Labels{"pool": pool})
		}
	}
}

// clear drops all figures: another replica has them from now on.
func (m *Metrics) clear() {
	if m != nil {
		for _, g := range m.all {
			g.Reset()
		}
	}
}

// set takes the figures of a view.
func (m *Metrics) set(v *view) {
	if m == nil || v.failed != nil {
		return
	}
	name, s := v.object.Name, v.object.Status
	is := map[bool]float64{true: 1}
	if last := s.LastRun; last != nil {
		if last.Exit == workflow.ExitDone {
			m.success.WithLabelValues(name, last.Kind).Set(float64(last.Ended.Unix()))
		}
		took := v.took
		if rec := v.open.record; rec.Ended != nil && rec.Name == last.Name {
			took = rec.Ended.At.Sub(rec.Begun)
		}
		if took > 0 {
			m.duration.WithLabelValues(name, last.Kind).Set(took.Round(time.Second).Seconds())
		}
		m.takenBack.WithLabelValues(name).Set(is[last.Kind == api.RunWatch && last.Exit == workflow.ExitFailed])
		m.rolloutStopped.WithLabelValues(name).Set(is[last.Kind == api.RunRollout && last.Exit == workflow.ExitNeedsPerson])
	}
	if v.seenPool != nil {
		quarantined := 0
		for _, x := range s.Versions {
			quarantined += int(is[x.State == api.VersionQuarantined])
		}
		m.quarantined.WithLabelValues(name).Set(float64(quarantined))
		m.out.WithLabelValues(name).Set(float64(s.Nodes.Failed))
		m.outdated.WithLabelValues(name).Set(float64(s.Nodes.Old))
		m.image.DeletePartialMatch(prometheus.Labels{"pool": name})
		m.image.WithLabelValues(name, s.Image).Set(1)
		m.age.DeleteLabelValues(name)
		if s.ImageBuilt != nil {
			m.age.WithLabelValues(name).Set(float64(s.ImageBuilt.Unix()))
		}
	}
	for _, c := range s.Conditions {
		if c.Type == api.ConditionStalled {
			m.stalled.WithLabelValues(name).Set(is[c.Status == "True"])
		}
	}
}

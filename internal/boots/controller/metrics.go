package controller

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

// meters are the controller's figures, in the library's registry, whose server
// shows them.
type meters struct {
	fleet    *Fleet
	budget   *Budget
	all      []prometheus.Collector
	verdicts *prometheus.CounterVec
	failures *prometheus.CounterVec
	boots    *prometheus.HistogramVec
	stages   *prometheus.HistogramVec
	calls    *prometheus.CounterVec
	boot     *bootMeters
	now      func() time.Time
}

var (
	instancesDesc = prometheus.NewDesc("ortet_instances", "Instances by pool and state of their boot.", []string{"pool", "state"}, nil)
	requestsDesc  = prometheus.NewDesc("ortet_arm_requests_total",
		"Requests sent to Azure Resource Manager, pages and tries included.", nil, nil)
	listedDesc = prometheus.NewDesc("ortet_pool_listed_seconds", "Seconds since a pool was last listed.", []string{"pool"}, nil)
)

// newMeters registers them; close takes them out again.
func newMeters(f *Fleet, c Config) (*meters, error) {
	buckets := []float64{5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200}
	m := &meters{fleet: f, budget: c.Budget, now: c.Now, boot: newBootMeters(),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ortet_boot_verdicts_total",
			Help: "Boots that ended, once for each published outcome, and the first source of the verdict.",
		}, []string{"pool", "outcome", "source"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ortet_boot_failures_total",
			Help: "Boots that did not end well, by reason, how sure that is, and who can mend it.",
		}, []string{"pool", "outcome", "reason", "owner", "confidence"}),
		boots: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ortet_boot_duration_seconds",
			Help:    "From the instance's creation to its Ready Node.",
			Buckets: buckets,
		}, []string{"pool"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ortet_boot_verdict_stage_seconds",
			Help:    "How long a stage of the boot took, as the node reports it.",
			Buckets: append([]float64{0.5, 1, 2}, buckets...),
		}, []string{"pool", "stage"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ortet_cloud_calls_total",
			Help: "Calls of the cloud by what was asked and how it went.",
		}, []string{"call", "result"}),
	}
	for _, c := range append(m.boot.all(), m.verdicts, m.failures, m.boots, m.stages, m.calls, m) {
		if err := ctrlmetrics.Registry.Register(c); err != nil {
			m.close()
			return nil, fmt.Errorf("register metrics: %w", err)
		}
		m.all = append(m.all, c)
	}
	return m, nil
}

func (m *meters) close() {
	for _, c := range m.all {
		ctrlmetrics.Registry.Unregister(c)
	}
}

// Describe names what Collect sends.
func (m *meters) Describe(out chan<- *prometheus.Desc) {
	out <- instancesDesc
	out <- requestsDesc
	out <- listedDesc
}

// Collect sends what is read at each scrape.
func (m *meters) Collect(out chan<- prometheus.Metric) {
	for pool, states := range m.fleet.counts() {
		for _, s := range []assess.State{assess.Succeeded, assess.Failed, assess.Degraded, assess.TimedOut, assess.Booting, assess.Stopped, assess.Deleting, assess.Unclear} {
			out <- prometheus.MustNewConstMetric(instancesDesc, prometheus.GaugeValue, float64(states[s]), pool, string(s))
		}
	}
	for pool, at := range m.fleet.listed() {
		out <- prometheus.MustNewConstMetric(listedDesc, prometheus.GaugeValue, m.now().Sub(at).Seconds(), pool)
	}
	out <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(m.budget.Spent()))
}

// asked counts a call of the cloud.
func (m *meters) asked(what string, err error) {
	result := "ok"
	if err != nil {
		if result = string(fleet.KindOf(err)); result == "" {
			result = "Unknown"
		}
	}
	m.calls.WithLabelValues(what, result).Inc()
}

// ended counts the outcome of a boot.
func (m *meters) ended(a assess.Assessment, node *corev1.Node) {
	pool := a.Pool.Name()
	m.verdicts.WithLabelValues(pool, string(a.State), string(a.Source)).Inc()
	if a.State != assess.Succeeded {
		m.failures.WithLabelValues(pool, string(a.State), a.Reason(), string(a.Owner()), string(a.Confidence())).Inc()
	}
	if node != nil && a.State == assess.Succeeded {
		if d, known := a.FirstBoot(viewOf(node), m.now()); known {
			m.boots.WithLabelValues(pool).Observe(d.Seconds())
		}
	}
	if a.Verdict == nil {
		return
	}
	for _, s := range a.Verdict.Stages {
		if s.End > s.Begin {
			m.stages.WithLabelValues(pool, stageLabel(s.Name)).Observe(float64(s.End-s.Begin) / 1000)
		}
	}
}

// stageLabel bounds the number of series: nodes choose the names of their stages.
func stageLabel(name string) string {
	switch name {
	case "init-local", "init", "modules-config", "modules-final", "kubelet", "node":
		return name
	}
	return "other"
}

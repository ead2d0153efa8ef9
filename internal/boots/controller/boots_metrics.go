package controller

import (
	"cmp"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/timeline"
)

// bootMeters are the figures of boots' timelines. Their names are those that
// deploy/grafana shows.
type bootMeters struct {
	total, stages, waits *prometheus.HistogramVec
	refused              prometheus.Counter

	mu     sync.Mutex
	images map[[2]string]prometheus.Labels // what is labelled, by the store's labels of pool and image
}

func newBootMeters() *bootMeters {
	buckets := []float64{0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	return &bootMeters{
		total: histogram("ortet_boot_total_seconds",
			"From the request for a machine, as far as it is known, to its Ready node, once for each boot.", "pool", "image"),
		stages: histogram("ortet_boot_stage_seconds",
			"A stage's share of the critical path of a boot, once for each boot.", "pool", "image", "stage"),
		waits: histogram("ortet_boot_wait_seconds",
			"What boots waited for on their critical path, once for each cause and boot.", "pool", "cause"),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ortet_boot_reports_refused_total",
			Help: "Reports of boots that were not what they should be.",
		}),
		images: map[[2]string]prometheus.Labels{},
	}
}

func (m *bootMeters) all() []prometheus.Collector {
	return []prometheus.Collector{m.total, m.stages, m.waits, m.refused}
}

// observe counts a boot. Of one whose end is not known nothing is counted: its
// stages would seem fast.
func (m *bootMeters) observe(t timeline.Timeline, record assess.BootRecord) {
	if !t.Complete {
		return
	}
	pool, image := record.Pool.Name(), cmp.Or(record.ImageVersion(), "unknown")
	m.mu.Lock()
	m.images[[2]string{assess.LabelText(pool), assess.ImageHash(record.Image)}] = prometheus.Labels{"pool": pool, "image": image}
	m.mu.Unlock()
	m.total.WithLabelValues(pool, image).Observe(t.Total().Seconds())
	for _, s := range timeline.Stages(t) {
		m.stages.WithLabelValues(pool, image, string(s.Stage)).Observe(s.OnPath.Duration().Seconds())
	}
	waits := map[string]float64{}
	for _, s := range t.Path {
		if s.Wait != nil {
			waits[cmp.Or(s.Wait.Cause, "unknown")] += (s.End - s.Start).Duration().Seconds()
		}
	}
	for cause, seconds := range waits {
		m.waits.WithLabelValues(pool, cause).Observe(seconds)
	}
}

// forget leaves out an image version of which nothing is kept any more: otherwise the
// number of series would grow with each that ever was.
func (m *bootMeters) forget(pool, image string) {
	m.mu.Lock()
	labels := m.images[[2]string{pool, image}]
	delete(m.images, [2]string{pool, image})
	m.mu.Unlock()
	if labels != nil {
		m.total.DeletePartialMatch(labels)
		m.stages.DeletePartialMatch(labels)
	}
}

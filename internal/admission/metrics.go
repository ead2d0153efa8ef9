package admission

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// meters are the server's figures. Labels have few values: never what a stranger
// sends.
type meters struct {
	decisions *prometheus.CounterVec
	took      *prometheus.HistogramVec
	stages    *prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec
	closed    prometheus.Counter
	now       func() time.Time
}

func newMeters(registry prometheus.Registerer, now func() time.Time) (*meters, error) {
	buckets := []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	m := &meters{
		now:       now,
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ortet_admission_decisions_total", Help: "Requests by what was asked and the reason of the answer, Granted among them."}, []string{"operation", "reason"}),
		took:      prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ortet_admission_duration_seconds", Help: "From a request's arrival to its answer, by what was asked.", Buckets: append(buckets, 60, 300, 900)}, []string{"operation"}),
		stages:    prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ortet_admission_stage_seconds", Help: "How long a check or an act of an admission took.", Buckets: buckets}, []string{"stage"}),
		inFlight:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ortet_admission_in_flight", Help: "Requests that are being worked on, by their share: short, leave or report."}, []string{"share"}),
		closed:    prometheus.NewCounter(prometheus.CounterOpts{Name: "ortet_admission_connections_closed_total", Help: "Connections that were closed at once, since their address had its part of --max-connections open."}),
	}
	if err := register(registry, m.decisions, m.took, m.stages, m.inFlight, m.closed); err != nil {
		return nil, err
	}
	return m, nil
}

// register registers figures; nowhere where there is no registry.
func register(registry prometheus.Registerer, all ...prometheus.Collector) error {
	if registry == nil {
		return nil
	}
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// stage times something until the returned function is called.
func (m *meters) stage(name string) func() {
	began := m.now()
	return func() { m.stages.WithLabelValues(name).Observe(m.now().Sub(began).Seconds()) }
}

package source

import (
	"io"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// kubeletPhases are the gauges of the kubelet's start-up, and the names of their spans, in
// their order: each begins where the one before ended, the first at the machine's start.
// That one is no work of the kubelet's, and left out. Source: kubernetes,
// pkg/kubelet/util/nodestartuplatencytracker.go.
var kubeletPhases = [...][2]string{
	{"kubelet_node_startup_pre_kubelet_duration_seconds", ""},
	{"kubelet_node_startup_pre_registration_duration_seconds", "pre-registration"},
	{"kubelet_node_startup_registration_duration_seconds", "register"},
	{"kubelet_node_startup_post_registration_duration_seconds", "post-registration"},
}

const kubeletTotal = "kubelet_node_startup_duration_seconds"

// KubeletMetrics reads the kubelet's metrics as Prometheus scrapes them. The gauges of its
// start-up count from the machine's boot, which the kubelet knows to the second; they exist
// only where this process registered a new Node.
func KubeletMetrics(r io.Reader, o Options) []wire.BootReport {
	in := newLines(r, o)
	b := newBoot()
	var took [len(kubeletPhases)]wire.Micros
	var have [len(kubeletPhases)]bool
	var total wire.Micros
	for in.next() {
		line := string(in.line)
		if !strings.HasPrefix(line, "kubelet_node_startup_") {
			continue
		}
		name, value, ok := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		value, _, _ = strings.Cut(strings.TrimSpace(value), " ") // a time may follow
		at, good := gauge(value)
		if !ok || !good {
			in.bad++
			continue
		}
		in.good++
		for i := range kubeletPhases {
			if kubeletPhases[i][0] == name {
				took[i], have[i] = at, true
			}
		}
		if name == kubeletTotal {
			total = at
		}
	}
	s := in.source("kubelet-metrics", o)
	span := wire.BootSpan{Source: sourceKubelet, Clock: wire.ClockMonotonic, Grain: second, Unit: "kubelet.service"}
	tell := func(name string, from, to wire.Micros) {
		span.Name, span.Start, span.End = name, from, to
		b.span(span)
	}
	var from wire.Micros
	for i := range kubeletPhases {
		if !have[i] {
			break // where a later one begins is not known
		}
		if i == 0 {
			tell("start", took[i], took[i])
		} else {
			tell(kubeletPhases[i][1], from, from+took[i])
		}
		from += took[i]
	}
	if total > 0 {
		tell("ready", total, total)
	}
	if len(b.report.Spans) == 0 {
		s = nothing(s, "the gauges of a start-up are not in it: the kubelet has them where it registered a new Node")
	}
	return []wire.BootReport{b.done(s)}
}

// gauge reads a metric's value as a duration in seconds, also such as 1.5e+01.
func gauge(s string) (wire.Micros, bool) {
	if at, ok := seconds(s); ok {
		return at, true
	}
	mantissa, exponent, ok := strings.Cut(strings.ToLower(s), "e")
	at, good := seconds(mantissa)
	sign := strings.HasPrefix(exponent, "-")
	n, fine := number2(strings.TrimLeft(exponent, "+-"))
	if !ok || !good || !fine {
		return 0, false
	}
	for ; n > 0 && at < maxMonotonic; n-- {
		if sign {
			at /= 10
		} else {
			at *= 10
		}
	}
	return at, at <= maxMonotonic
}

// number2 reads a number of one or two digits.
func number2(s string) (int, bool) {
	if len(s) == 1 {
		return digits(s, 1)
	}
	if len(s) != 2 {
		return 0, false
	}
	return digits(s, 2)
}

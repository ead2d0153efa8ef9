package draw

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

// ServiceName is the service that boots are traces of.
const ServiceName = "node-boot"

// ErrNoKernelStart is that a boot cannot be put among other traces.
var ErrNoKernelStart = errors.New("no clock tells when its kernel started, so it has no place in time; collect the boot report on the node itself (ortet-node report), or give a journal together with the chains")

// Trace is a boot by OpenTelemetry's data model, as a request of OTLP: a span for the boot,
// spans and the path's waits below it, links to what a span was ordered after, moments as
// events. Its ids follow from the machine's and the boot's, so that a second export is the
// same trace. more are attributes of its resource that are not in the timeline, such as
// cloud.resource_id.
func Trace(t timeline.Timeline, more map[string]string) (*collectorpb.ExportTraceServiceRequest, error) {
	v := newView(t)
	if v.KernelStart.IsZero() {
		return nil, fmt.Errorf("trace of the boot of %s: %w", v.title(), ErrNoKernelStart)
	}
	// Nanoseconds since the epoch are what OTLP counts, and there is room left.
	if y := v.KernelStart.UTC().Year(); y < 1980 || y > 2200 {
		return nil, fmt.Errorf("trace of the boot of %s: its kernel started in the year %d: the node's clock was not set", v.title(), y)
	}
	x := &tracing{view: v, id: traceID(v), spans: map[string]*tracepb.Span{}}
	return &collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resourcepb.Resource{Attributes: x.resource(more)},
		ScopeSpans: []*tracepb.ScopeSpans{{Scope: &commonpb.InstrumentationScope{Name: "github.com/ortet/ortet"}, Spans: x.all()}},
	}}}, nil
}

// tracing is a boot that is being made a trace.
type tracing struct {
	view
	id []byte
	// By the timeline's ids; of the moments there are none.
	spans   map[string]*tracepb.Span
	parents map[string]string
}

// traceID is the boot's. Where neither machine nor boot has an id, the node and
// the time have to do.
func traceID(v view) []byte {
	who := []string{"ortet boot", v.VMID, v.BootID}
	if v.VMID == "" && v.BootID == "" {
		who = append(who, v.Node, v.KernelStart.UTC().String())
	}
	sum := sha256.Sum256([]byte(strings.Join(who, "\x00")))
	return sum[:16]
}

// spanID is of what is named so in this boot.
func (x *tracing) spanID(kind, id string) []byte {
	sum := sha256.Sum256(fmt.Append(nil, x.id, "\x00", kind, "\x00", id))
	sum[7] |= 1 // eight zeros are no id
	return sum[:8]
}

func (x *tracing) nanos(m wire.Micros) uint64 {
	return uint64(x.KernelStart.UnixNano() + int64(m)*1000) // not negative: after 1980, plus or minus three years
}

func (x *tracing) resource(more map[string]string) []*commonpb.KeyValue {
	all := map[string]string{"service.name": ServiceName, "k8s.node.name": x.Node, "host.name": x.Node, "host.id": x.VMID, "host.image.id": x.Image,
		"azure.vm.scaleset.name": x.Pool, "ortet.boot.id": x.BootID, "cloud.provider": "azure", "cloud.platform": "azure.vm"}
	maps.Copy(all, more)
	var out []*commonpb.KeyValue
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if all[k] != "" {
			out = append(out, words(k, printable(all[k])))
		}
	}
	return out
}

func words(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

func truth(key string, value bool) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: value}}}
}

func count(key string, value int64) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: value}}}
}

// all are the trace's spans: the boot itself is the first.
func (x *tracing) all() []*tracepb.Span {
	root := x.span("boot", "", "boot", x.Origin, x.End)
	root.Attributes = []*commonpb.KeyValue{words("ortet.from", x.OriginIs), words("ortet.to", x.EndIs), truth("ortet.complete", x.Complete)}
	if x.Idle > 0 {
		root.Attributes = append(root.Attributes, count("ortet.idle_us", int64(x.Idle)))
	}
	for _, c := range classOrder {
		root.Attributes = append(root.Attributes, count("ortet.spent_us."+string(c), int64(x.share[c])))
	}
	if !x.Complete {
		root.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "it was not seen to finish"}
	}
	out := []*tracepb.Span{root}
	seen := map[string]int{}
	of := make([]*tracepb.Span, len(x.Spans))
	for i, s := range x.Spans {
		if s.Kind == timeline.KindMoment {
			continue
		}
		id := s.ID
		if seen[s.ID]++; seen[s.ID] > 1 {
			id += "\x00" + strconv.Itoa(seen[s.ID])
		}
		of[i] = x.span("span", id, s.Name, s.Start, s.End)
		of[i].Attributes = x.attributes(s)
		if failed(s.Result) {
			of[i].Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: s.Result}
		}
		if _, ok := x.spans[s.ID]; !ok {
			x.spans[s.ID] = of[i]
		}
		out = append(out, of[i])
	}
	for i, s := range x.Spans {
		parent := root
		if p := x.spans[s.Parent]; p != nil && p != of[i] && !x.circle(s) {
			parent = p
		}
		if of[i] == nil {
			parent.Events = append(parent.Events, &tracepb.Span_Event{TimeUnixNano: x.nanos(s.Start), Name: s.Name, Attributes: x.attributes(s)})
			continue
		}
		of[i].ParentSpanId = parent.SpanId
		for _, id := range s.After {
			if before := x.spans[id]; before != nil && before != of[i] {
				if len(of[i].Links) == maxLinks {
					of[i].DroppedLinksCount++
					continue
				}
				of[i].Links = append(of[i].Links, &tracepb.Span_Link{TraceId: x.id, SpanId: before.SpanId, Attributes: []*commonpb.KeyValue{words("ortet.link", "after")}})
			}
		}
	}
	for i, s := range x.Path {
		if s.Wait != nil {
			out = append(out, x.wait(i, s, root))
		}
	}
	return out
}

// maxLinks is how many links of a span OpenTelemetry's own libraries keep.
const maxLinks = 128

func (x *tracing) span(kind, id, name string, from, to wire.Micros) *tracepb.Span {
	if name == "" {
		name = kind
	}
	return &tracepb.Span{TraceId: x.id, SpanId: x.spanID(kind, id), Name: name, Kind: tracepb.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: x.nanos(from), EndTimeUnixNano: x.nanos(to), Flags: 1}
}

// wait is a step of the path in which nothing on it ran.
func (x *tracing) wait(i int, s timeline.Step, root *tracepb.Span) *tracepb.Span {
	// What waited is the same in each boot, which number its wait has is not.
	w := x.span("wait", s.Wait.Before+"\x00"+s.Wait.After+"\x00"+strconv.Itoa(i), "wait before "+x.nameOf(s.Wait.Before), s.Start, s.End)
	w.ParentSpanId = root.SpanId
	if of := x.spans[s.Span]; of != nil { // it is that span that waited
		w.ParentSpanId = of.SpanId
	}
	w.Attributes = []*commonpb.KeyValue{words("ortet.kind", "wait"), words("ortet.class", string(timeline.Waiting)), truth("ortet.on_path", true), truth("ortet.wait.hidden", s.Wait.Hidden)}
	for _, a := range []struct{ key, text string }{{"ortet.wait.cause", s.Wait.Cause}, {"ortet.wait.evidence", s.Wait.Evidence}, {"ortet.wait.before", s.Wait.Before}, {"ortet.wait.after", s.Wait.After}} {
		if a.text != "" {
			w.Attributes = append(w.Attributes, words(a.key, a.text))
		}
	}
	if after := x.spans[s.Wait.After]; after != nil {
		w.Links = []*tracepb.Span_Link{{TraceId: x.id, SpanId: after.SpanId, Attributes: []*commonpb.KeyValue{words("ortet.link", "after")}}}
	}
	return w
}

func (x *tracing) attributes(s timeline.Span) []*commonpb.KeyValue {
	class := x.classes[s.ID]
	out := []*commonpb.KeyValue{words("ortet.id", s.ID), words("ortet.source", s.Source), words("ortet.kind", string(s.Kind)), truth("ortet.on_path", class != "")}
	for _, a := range []struct{ key, text string }{{"ortet.class", string(class)}, {"ortet.result", s.Result}, {"ortet.detail", s.Detail}} {
		if a.text != "" {
			out = append(out, words(a.key, a.text))
		}
	}
	if s.Uncertainty > 0 {
		out = append(out, count("ortet.uncertainty_us", int64(s.Uncertainty)))
	}
	if s.Open {
		out = append(out, truth("ortet.open", true))
	}
	return out
}

// failed reports whether a result is an error: what only warned, or was passed over, is
// none.
func failed(result string) bool {
	switch strings.ToLower(result) {
	case "", "success", "warn", "warning", "skipped":
		return false
	}
	return true
}

// circle reports that a span is a part of itself.
func (x *tracing) circle(s timeline.Span) bool {
	if x.parents == nil {
		x.parents = make(map[string]string, len(x.Spans))
		for _, of := range x.Spans {
			if _, ok := x.parents[of.ID]; !ok {
				x.parents[of.ID] = of.Parent
			}
		}
	}
	seen := map[string]bool{s.ID: true}
	for id := s.Parent; id != ""; id = x.parents[id] {
		if seen[id] {
			return true
		}
		seen[id] = true
	}
	return false
}

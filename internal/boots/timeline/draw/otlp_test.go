package draw

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// receiver is a collector that keeps what it is sent.
type receiver struct {
	*httptest.Server
	got    []*collectorpb.ExportTraceServiceRequest
	header http.Header
	path   string
}

func receive(t *testing.T, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		var got collectorpb.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &got); err != nil {
			t.Errorf("what came is no trace: %v", err)
		}
		r.got, r.header, r.path = append(r.got, &got), req.Header.Clone(), req.URL.Path
		if answer != nil {
			answer(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

func attribute(list []*commonpb.KeyValue, key string) string {
	for _, a := range list {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

func TestTraceArrives(t *testing.T) {
	r := receive(t, nil)
	of := aks(t)
	c := Collector{URL: r.URL, Client: r.Client(), Header: http.Header{"Authorization": {"Bearer x"}}, Resource: map[string]string{"cloud.resource_id": "/subscriptions/s/vm"}}
	for range 2 {
		if err := c.Send(context.Background(), of); err != nil {
			t.Fatal(err)
		}
	}
	if r.path != "/v1/traces" || r.header.Get("Content-Type") != "application/x-protobuf" || r.header.Get("Authorization") != "Bearer x" {
		t.Errorf("sent to %s with %v", r.path, r.header)
	}
	if !proto.Equal(r.got[0], r.got[1]) {
		t.Error("exported again it is another trace")
	}
	resource := r.got[0].GetResourceSpans()[0].GetResource().GetAttributes()
	for key, want := range map[string]string{"service.name": "node-boot", "k8s.node.name": of.Node, "host.id": of.VMID, "cloud.provider": "azure", "cloud.resource_id": "/subscriptions/s/vm", "host.image.id": of.Image} {
		if got := attribute(resource, key); got != want {
			t.Errorf("%s is %q, not %q", key, got, want)
		}
	}
	spans := r.got[0].GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()
	root := spans[0]
	byID, ids := map[string]*tracepb.Span{}, map[string]bool{}
	waits := map[string]*tracepb.Span{}
	for _, s := range spans {
		if len(s.GetTraceId()) != 16 || len(s.GetSpanId()) != 8 || string(s.GetTraceId()) != string(root.GetTraceId()) {
			t.Errorf("%s has the ids %x and %x", s.GetName(), s.GetTraceId(), s.GetSpanId())
		}
		if ids[string(s.GetSpanId())] {
			t.Errorf("two spans have the id of %s", s.GetName())
		}
		ids[string(s.GetSpanId())] = true
		if s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			t.Errorf("%s ends before it begins", s.GetName())
		}
		if attribute(s.GetAttributes(), "ortet.kind") == "wait" {
			waits[attribute(s.GetAttributes(), "ortet.wait.before")] = s
		} else {
			byID[attribute(s.GetAttributes(), "ortet.id")] = s
		}
	}
	for _, s := range spans {
		if p := s.GetParentSpanId(); s == root && len(p) != 0 || s != root && !ids[string(p)] {
			t.Errorf("%s has the parent %x", s.GetName(), p)
		}
	}
	at := func(ms float64) uint64 {
		return uint64(of.KernelStart.Add(time.Duration(ms * float64(time.Millisecond))).UnixNano())
	}
	if root.GetName() != "boot" || root.GetStartTimeUnixNano() != at(-21300) || root.GetEndTimeUnixNano() != at(58402.7) || root.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("the boot is %v", root)
	}
	final, module := byID["cloud-init/modules-final"], byID["cloud-init/modules-final/scripts-user"]
	if string(module.GetParentSpanId()) != string(final.GetSpanId()) || string(final.GetParentSpanId()) != string(root.GetSpanId()) {
		t.Error("a module is no part of its stage, or the stage none of the boot")
	}
	if module.GetStartTimeUnixNano() != at(30944.1) || module.GetEndTimeUnixNano() != at(31420.9) {
		t.Errorf("scripts-user lies at %d to %d", module.GetStartTimeUnixNano(), module.GetEndTimeUnixNano())
	}
	if l := byID["unit/kubelet.service"].GetLinks(); len(l) != 1 || string(l[0].GetSpanId()) != string(byID["unit/containerd.service"].GetSpanId()) {
		t.Errorf("the kubelet's links are %v", l)
	}
	w := waits["unit/cloud-init.service"]
	if w == nil || attribute(w.GetAttributes(), "ortet.wait.cause") != "another unit's job" || !strings.HasPrefix(w.GetName(), "wait before cloud-init") {
		t.Errorf("the wait is %v", w)
	}
	if byID["node/ready"] != nil || byID["unit/-.slice"] == nil {
		t.Error("a moment is a span, or a unit that took no time is none")
	}
	var events []string
	for _, e := range root.GetEvents() {
		events = append(events, e.GetName())
		if e.GetName() == "Node Ready" && e.GetTimeUnixNano() != root.GetEndTimeUnixNano() {
			t.Error("Node Ready is not at the end")
		}
	}
	if got := strings.Join(events, ", "); got != "goal state fetched, Node created, Node Ready, first pod running" {
		t.Errorf("the events are %s", got)
	}
	if got := byID["cse/wait-dpkg"].GetStatus().GetCode(); got != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("a warning is %v", got)
	}
}

func TestTraceOfWhatFailed(t *testing.T) {
	of := partial(t)
	of.KernelStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	trace, err := Trace(of, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range trace.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans() {
		bad := s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR
		if want := s.GetName() == "boot" || s.GetName() == "cloud-init-local.service"; bad != want {
			t.Errorf("%s: failed is %v", s.GetName(), bad)
		}
	}
}

// What a node says can make a trace odd, never one that cannot be encoded or has
// spans without parents, or in a circle.
func TestTraceOfHostile(t *testing.T) {
	trace, err := Trace(hostile(t), map[string]string{"x\x1b": "\xff"})
	if err == nil {
		_, err = proto.Marshal(trace)
	}
	if err != nil {
		t.Fatal(err)
	}
	spans := trace.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()
	parents := map[string]string{}
	for _, s := range spans {
		parents[string(s.GetSpanId())] = string(s.GetParentSpanId())
	}
	if len(parents) != len(spans) {
		t.Errorf("%d ids of %d spans", len(parents), len(spans))
	}
	for _, s := range spans {
		at, n := string(s.GetSpanId()), 0
		for ; at != "" && n <= len(spans); n++ {
			at = parents[at]
		}
		if n > len(spans) {
			t.Errorf("%q is a part of itself", s.GetName())
		}
	}
}

func TestTraceNeedsATime(t *testing.T) {
	r := receive(t, nil)
	of := aks(t)
	of.KernelStart = time.Time{}
	if err := (Collector{URL: r.URL, Client: r.Client()}).Send(context.Background(), of); !errors.Is(err, ErrNoKernelStart) || len(r.got) != 0 {
		t.Errorf("it says %v, and sent %d", err, len(r.got))
	}
	of.KernelStart = time.Unix(60, 0)
	if _, err := Trace(of, nil); err == nil || !strings.Contains(err.Error(), "1970") {
		t.Errorf("a clock that was not set: %v", err)
	}
}

func TestCollectorsErrors(t *testing.T) {
	status := protowire.AppendString(protowire.AppendTag(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 3), 2, protowire.BytesType), "too \x1b[31mlarge")
	rejected, err := proto.Marshal(&collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: 3, ErrorMessage: "quota"}})
	if err != nil {
		t.Fatal(err)
	}
	say := func(code int, kind string, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			if _, err := w.Write(body); err != nil {
				t.Error(err)
			}
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"status":       {say(400, "application/x-protobuf", status), "400 Bad Request: too �[31mlarge"},
		"broken":       {say(500, "application/x-protobuf", []byte{0xff}), "500 Internal Server Error"},
		"words":        {say(404, "text/plain", []byte("no such page\n")), "404 Not Found: no such page; is that the port of OTLP over HTTP"},
		"rejected":     {say(200, "application/x-protobuf", rejected), "3 of its spans were rejected: quota"},
		"not protobuf": {say(200, "application/x-protobuf", []byte{0xff}), "read the answer"},
		"busy":         {say(503, "text/plain", nil), "it may take it later"},
	} {
		r := receive(t, c.answer)
		err := Collector{URL: r.URL, Client: r.Client()}.Send(context.Background(), k3s(t))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Collector{URL: receive(t, say(200, "application/json", []byte("{}"))).URL}).Send(context.Background(), k3s(t)); err != nil {
		t.Error(err)
	}
	for _, address := range []string{"", "localhost:4318", "ftp://x/", "http://", "http://user:secret@127.0.0.1:1", "http://a b/?secret"} {
		err := Collector{URL: address}.Send(context.Background(), k3s(t))
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	hung := receive(t, func(_ http.ResponseWriter, req *http.Request) {
		cancel()
		<-req.Context().Done()
	})
	if err := (Collector{URL: hung.URL, Client: hung.Client()}).Send(ctx, k3s(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("what is called off: %v", err)
	}
}

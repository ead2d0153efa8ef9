package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/journal/journaltest"
)

const fuzzPool = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p"

// A parrot answers every request alike; first answers the first one, where set.
type parrot struct {
	status      int
	first, body string
	wait        string // Retry-After
	sent        []*http.Request
}

func (p *parrot) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	p.sent = append(p.sent, r)
	body := p.body
	if p.first != "" && len(p.sent) == 1 {
		body = p.first
	}
	if len(p.sent) > 200 {
		return nil, io.ErrUnexpectedEOF
	}
	h := http.Header{"Content-Type": {"application/json"}}
	if p.wait != "" {
		h.Set("Retry-After", p.wait)
	}
	return &http.Response{StatusCode: p.status, Status: http.StatusText(p.status), Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func (p *parrot) cluster(t *testing.T) *Cluster {
	t.Helper()
	c, err := New(Config{REST: &rest.Config{Host: "https://kube.invalid", Transport: p, QPS: 1e6, Burst: 1e6}, Namespace: "ortet", ReadRetries: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// FuzzAnswer has every read and write answered by any body. What is understood
// can be told and compared; what is not is a *fleet.Error, and nothing waits for
// ever.
func FuzzAnswer(f *testing.F) {
	calls := []func(context.Context, *testing.T, *Cluster) error{
		func(ctx context.Context, t *testing.T, c *Cluster) error {
			n, err := c.Node(ctx, "n")
			if err == nil && n.Ready != (n.NotReadyWhy == "") {
				t.Errorf("Ready %v, because %q", n.Ready, n.NotReadyWhy)
			}
			return err
		},
		func(ctx context.Context, _ *testing.T, c *Cluster) error {
			for _, err := range c.Nodes(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		func(ctx context.Context, t *testing.T, c *Cluster) error {
			s, err := c.Job(ctx, "j")
			if err == nil && len(s.Output) > maxOutput {
				t.Errorf("%d bytes of output", len(s.Output))
			}
			return err
		},
		func(ctx context.Context, _ *testing.T, c *Cluster) error {
			_, err := c.DeleteJob(ctx, "j")
			return err
		},
		func(ctx context.Context, _ *testing.T, c *Cluster) error {
			_, err := c.Hold(ctx, fuzzPool, "me", time.Minute)
			return err
		},
		func(ctx context.Context, _ *testing.T, c *Cluster) error { return c.Release(ctx, fuzzPool, "me") },
		func(ctx context.Context, t *testing.T, c *Cluster) error {
			r, err := c.Journals().Load(ctx, fuzzPool)
			if err == nil {
				if !fleet.ResourceID(r.Pool).Equal(fuzzPool) || r.Name == "" || r.Schema != journal.Schema {
					t.Errorf("took the record %+v", r)
				}
				if _, err := journal.Encode(r); err != nil {
					t.Errorf("a record that cannot be written again: %v", err)
				}
			}
			return err
		},
		func(ctx context.Context, t *testing.T, c *Cluster) error {
			k, err := c.GetSecret(ctx, fuzzPool, "customData", hashOf("x"))
			if err == nil && k.Data.Reveal() != "x" {
				t.Errorf("took %q", k.Data.Reveal())
			}
			return err
		},
		func(ctx context.Context, _ *testing.T, c *Cluster) error {
			_, err := c.HoldReboots(ctx, "me", time.Minute)
			return err
		},
		func(ctx context.Context, _ *testing.T, c *Cluster) error {
			yes := "true"
			_, _, err := c.AnnotateMachine(ctx, fleet.Node{Annotations: map[string]string{fleet.AnnotationCapiMachine: "m", fleet.AnnotationCapiNamespace: "ns"}}, map[string]*string{"a": &yes})
			return err
		},
		func(ctx context.Context, _ *testing.T, c *Cluster) error {
			_, err := c.Denied(ctx, []cluster.Access{{Verb: "get", Resource: "nodes"}})
			return err
		},
		func(ctx context.Context, _ *testing.T, c *Cluster) error {
			return c.Drain(ctx, "n", cluster.DrainOptions{GracePeriod: time.Second, Deadline: time.Minute}, func(cluster.DrainEvent) {})
		},
		func(ctx context.Context, _ *testing.T, c *Cluster) error { return c.ForceDeleteJob(ctx, "j") },
	}
	record, err := journal.Encode(journaltest.Sample(fuzzPool))
	if err != nil {
		f.Fatal(err)
	}
	secret := func(data string) string {
		body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s", "resourceVersion": "7",
			"annotations": map[string]string{"ortet.io/kind": "customData", "ortet.io/at": "yesterday", "ortet.io/" + savedKey("customData", hashOf("x")): `{"at":7}`}},
			"data": map[string][]byte{journalKey: []byte(data), "data": []byte("x"), savedKey("customData", hashOf("x")): []byte("x")}})
		if err != nil {
			f.Fatal(err)
		}
		return string(body)
	}
	add := func(which int, body string) { f.Add(uint8(which), 200, "", body) }
	for i := range calls {
		add(i, `{}`)
		add(i, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`)
		add(i, `{"items":[{}],"metadata":{"continue":"x"}}`)
		add(i, `<html>`)
		f.Add(uint8(i), 429, "3", `{"kind":"Status","details":{"causes":[{"reason":"DisruptionBudget"}],"retryAfterSeconds":-5}}`)
		f.Add(uint8(i), 404, "", `{"kind":"Status","apiVersion":"v1","reason":"NotFound","code":404}`)
		f.Add(uint8(i), 409, "", `{"kind":"Status","apiVersion":"v1","reason":"Conflict","code":409}`)
	}
	add(0, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","labels":null},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Ready","status":"False"}]}}`)
	add(2, `{"kind":"Pod","apiVersion":"v1","status":{"phase":"Failed","containerStatuses":[{"name":"work","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}]}}`)
	add(4, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"1"},"spec":{"holderIdentity":"other","leaseDurationSeconds":-1,"renewTime":"2026-11-21T10:00:00.000000Z"}}`)
	add(4, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","spec":{"holderIdentity":null,"leaseDurationSeconds":2147483647,"leaseTransitions":2147483647}}`)
	add(6, secret(string(record)))
	add(6, secret(strings.Replace(string(record), `"schema":2`, `"schema":3`, 1)))
	add(6, secret(`{"schema":1,"capture":"c","kind":"k","ended":{},"facts":{"original":{}},"pool":"`+fuzzPool+`"}`))
	add(7, secret(""))
	add(8, `{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"name":"kured","namespace":"x","annotations":{"weave.works/kured-node-lock":"{\"nodeID\":7}"}},"spec":{"template":{"spec":{"containers":[{"args":["--concurrency"]}]}}}}`)
	add(9, `{"kind":"APIGroup","preferredVersion":{"version":"v1beta2"},"versions":[]}`)
	add(11, `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"p","namespace":"ns","uid":"u","ownerReferences":[{"kind":"ReplicaSet","name":"r","controller":true}]},"spec":{"nodeName":"n"}}]}`)

	f.Fuzz(func(t *testing.T, which uint8, status int, wait, body string) {
		if status < 200 || status > 599 {
			return
		}
		call := calls[int(which)%len(calls)]
		synctest.Test(t, func(t *testing.T) {
			p := &parrot{status: status, body: body, wait: wait}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err := call(ctx, t, p.cluster(t))
			if err != nil {
				wantFleetError(t, err)
			}
		})
	})
}

func wantFleetError(t *testing.T, err error) {
	t.Helper()
	var e *fleet.Error
	if !errors.As(err, &e) {
		t.Fatalf("not a *fleet.Error: %T %v", err, err)
	}
	if e.Op == "" || e.RetryAfter < 0 {
		t.Errorf("%+v", e)
	}
}

// FuzzMachine has a node name any Machine, which its kubelet may do: only
// Machines are ever asked for, by the names that the node gives.
func FuzzMachine(f *testing.F) {
	f.Add("m", "ns", "v1beta2")
	f.Add("../../../api/v1/nodes/n", "ns", "v1")
	f.Add("m", "../..", "v1")
	f.Add("m?x=y", "n/s", "v1%2f..")
	f.Add("..", "%2e%2e", "../v1")
	f.Add(".", "#", "")
	f.Fuzz(func(t *testing.T, name, namespace, version string) {
		group, err := json.Marshal(map[string]any{"kind": "APIGroup", "preferredVersion": map[string]any{"version": version}})
		if err != nil {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			p := &parrot{status: 200, first: string(group), body: `{"apiVersion":"cluster.x-k8s.io/v1","kind":"Machine","metadata":{"name":"m","resourceVersion":"1"}}`}
			yes := "true"
			node := fleet.Node{Annotations: map[string]string{fleet.AnnotationCapiMachine: name, fleet.AnnotationCapiNamespace: namespace}}
			_, known, err := p.cluster(t).AnnotateMachine(t.Context(), node, map[string]*string{"a": &yes})
			if err != nil {
				wantFleetError(t, err)
			}
			for i, r := range p.sent {
				at := r.URL.Path
				if i == 0 && at == "/apis/cluster.x-k8s.io" {
					continue
				}
				parts := strings.Split(at, "/")
				if at != path.Clean(at) || len(parts) != 8 || parts[1] != "apis" || parts[2] != machineGroup || parts[4] != "namespaces" || parts[5] != namespace || parts[6] != "machines" || parts[7] != name {
					t.Errorf("asked for %s %q", r.Method, r.URL)
				}
			}
			if known && len(p.sent) < 3 {
				t.Errorf("annotated by %d requests", len(p.sent))
			}
		})
	})
}

// FuzzJudgePod asserts that a pod's status never shows an end without a code
// and, but for code 0, never hides that something is wrong.
func FuzzJudgePod(f *testing.F) {
	f.Add([]byte(`{"status":{"phase":"Failed","reason":"Evicted","message":"no room"}}`))
	f.Add([]byte(`{"metadata":{"deletionTimestamp":"2026-11-21T10:00:00Z"},"status":{"containerStatuses":[{"name":"work","state":{"waiting":{"reason":"ImagePullBackOff"}}}]}}`))
	f.Add([]byte(`{"status":{"containerStatuses":[{"name":"` + workContainer + `","state":{"terminated":{"exitCode":0},"running":{}}}]}}`))
	f.Add([]byte(`{"status":{"reason":"NodeLost","conditions":[{"type":"DisruptionTarget","status":"True","reason":"x"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var pod corev1.Pod
		if json.Unmarshal(data, &pod) != nil {
			return
		}
		s, started := judgePod(&pod)
		if !s.Exists || s.Done && s.ExitCode == -1 && s.Why == "" {
			t.Errorf("%s is %+v", data, s)
		}
		if s.Done && s.ExitCode == 0 && !started {
			t.Errorf("%s ended well without having begun", data)
		}
	})
}

// FuzzObjectName asserts that every key has a name that Kubernetes takes, in any
// letter case the same.
func FuzzObjectName(f *testing.F) {
	f.Add(fuzzPool)
	f.Add("/a/" + strings.Repeat("-", 80))
	f.Add("")
	f.Add("/ÄÖ/ü")
	label := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	f.Fuzz(func(t *testing.T, key string) {
		for _, name := range []string{JournalName(key), LeaseName(key)} {
			if !label.MatchString(name) {
				t.Errorf("%q of %q", name, key)
			}
		}
		if JournalName(key) != JournalName(strings.ToLower(key)) {
			t.Errorf("letter case tells %q apart", key)
		}
		if JournalName(key) == JournalName(key+"2") {
			t.Errorf("%q and %q2 share a journal", key, key)
		}
	})
}

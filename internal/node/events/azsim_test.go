package events

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/test/azsimserver"
)

// computers is a Substrate that remembers what runs.
type computers struct {
	azsim.NopSubstrate
	mu      sync.Mutex
	running map[string]azsim.Computer // by id
	metas   map[string]http.Handler   // by name; of computers that ran once
}

func (m *computers) Boot(_ context.Context, c azsim.Computer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[c.ID], m.metas[c.Name] = c, c.IMDS
	return nil
}

func (m *computers) Shutdown(_ context.Context, id string, _ bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, id)
	return nil
}

func (m *computers) Remove(ctx context.Context, id string) error { return m.Shutdown(ctx, id, false) }

// runs returns the ids of what runs.
func (m *computers) runs() map[string]azsim.Computer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.running)
}

// ask is an instance's metadata service.
func (m *computers) ask(name string) AskMetadata {
	return func(ctx context.Context, method, path string, body []byte) (bootstrap.Answer, error) {
		m.mu.Lock()
		h := m.metas[name]
		m.mu.Unlock()
		r := httptest.NewRequest(method, path, bytes.NewReader(body)).WithContext(ctx)
		r.Header.Set("Metadata", "true")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return bootstrap.Answer{Code: w.Code, Body: w.Body.Bytes()}, ctx.Err()
	}
}

// onAzure plays with a Spot pool of two on the simulated Azure, whose first instance
// is the world's node; both watch.
func onAzure(t *testing.T, play func(w *world, azure *azsim.Server, m *computers, id string)) {
	synctest.Test(t, func(t *testing.T) {
		m := &computers{running: map[string]azsim.Computer{}, metas: map[string]http.Handler{}}
		azure := &azsim.Server{Seed: 1, Substrate: m}
		defer azure.Close()
		if err := (azsimserver.Pool{Name: "pool1", Capacity: 2, Change: azsimserver.Spot("Deallocate")}).CreateIn(t.Context(), azure); err != nil {
			t.Fatal(err)
		}
		w, neighbour := newWorld(t), newWorld(t)
		id := ""
		for _, c := range m.runs() {
			if c.Name == "pool1_0" {
				id = c.ResourceID
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		var daemons sync.WaitGroup
		for of, name := range map[*world]string{w: "pool1_0", neighbour: "pool1_1"} {
			of.pod("web", 0, 5)
			o := of.options()
			o.Metadata = m.ask(name)
			daemons.Go(func() { Run(ctx, o) })
		}
		time.Sleep(10 * time.Minute) // events are switched on
		play(w, azure, m, id)
		stop()
		daemons.Wait()
		if neighbour.cordoned() || neighbour.pods() != "web" {
			t.Errorf("the neighbour: cordoned %v, pods %q", neighbour.cordoned(), neighbour.pods())
		}
	})
}

// Azure evicts: the node leaves, and the machine goes as soon as it has.
func TestEvictionOnAzure(t *testing.T) {
	onAzure(t, func(w *world, azure *azsim.Server, m *computers, id string) {
		if err := azure.Evict(id); err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		if w.node() != nil || w.pods() != "" {
			w.t.Errorf("the Node %v, pods %q", w.node(), w.pods())
		}
		if n := len(m.runs()); n != 1 {
			w.t.Errorf("%d machines run", n)
		}
	})
}

// Azure restarts the machine: it is drained first, restarted early, and given back.
func TestRebootOnAzure(t *testing.T) {
	onAzure(t, func(w *world, azure *azsim.Server, _ *computers, id string) {
		if _, err := azure.Schedule(id, "Reboot", 0); err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if !w.cordoned() || w.pods() != "" {
			w.t.Errorf("cordoned %v, pods %q", w.cordoned(), w.pods())
		}
		s := w.kept()
		if len(s.Events) != 1 || s.Events[0].Phase != Acknowledged || !s.Events[0].Started {
			w.t.Errorf("15 minutes before its time: %+v", s)
		}
		time.Sleep(20 * time.Minute)
		if w.cordoned() || w.kept().Touched || len(w.kept().Events) > 0 {
			w.t.Errorf("not given back: %+v", w.kept())
		}
	})
}

// Azure thinks better of it.
func TestCancelledOnAzure(t *testing.T) {
	onAzure(t, func(w *world, azure *azsim.Server, _ *computers, id string) {
		w.kube.Ends = nil
		event, err := azure.Schedule(id, "Redeploy", 0)
		if err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if !w.cordoned() {
			w.t.Error("not cordoned")
		}
		azure.CancelEvent(event)
		time.Sleep(10 * time.Second)
		if w.cordoned() || len(w.kept().Events) > 0 {
			w.t.Errorf("not given back: %+v", w.kept())
		}
	})
}

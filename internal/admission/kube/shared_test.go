//go:build e2e

package kube_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// All replicas have one key and one authority, whoever begins, and of many that spend a
// nonce at once one does.
func TestReplicasShare(t *testing.T) {
	w := newWorld(t, "ortet-share")
	const replicas = 4
	var keys, authorities [replicas][]byte
	var spent atomic.Int32
	expires := time.Now().Add(time.Minute)
	var group sync.WaitGroup
	for i := range replicas {
		c := w.open()
		group.Go(func() {
			var err error
			if keys[i], err = c.NonceKey(w.ctx); err != nil {
				t.Error(err)
			}
			if authorities[i], _, err = c.Authority(w.ctx, func() ([]byte, []byte, error) {
				return fmt.Appendf(nil, "certificate %d", i), []byte("key"), nil
			}); err != nil {
				t.Error(err)
			}
			switch err := c.Spend(w.ctx, strings.Repeat("a1", 20), expires); {
			case err == nil:
				spent.Add(1)
			case !errors.Is(err, admission.ErrSpent):
				t.Error(err)
			}
		})
	}
	group.Wait()
	for i := range replicas {
		if len(keys[i]) != 32 || !bytes.Equal(keys[i], keys[0]) || !bytes.Equal(authorities[i], authorities[0]) {
			t.Errorf("replica %d has %x and %s", i, keys[i], authorities[i])
		}
	}
	if n := spent.Load(); n != 1 {
		t.Errorf("the nonce was spent %d times", n)
	}
	bundle, err := w.open().ClientCAs(w.ctx)
	must(t, err)
	if !bytes.Contains(bundle, w.cp.CA()) {
		t.Errorf("client authorities: %s", bundle)
	}
}

// counting counts writes of one path, and makes new objects of the folder before it go
// first, so many: then all have asked.
type counting struct {
	next   http.RoundTripper
	path   string
	writes *atomic.Int32
	before *atomic.Int32
	first  chan struct{}
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, path.Dir(c.path)):
		if c.before.Add(-1) == 0 {
			close(c.first)
		}
	case r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, c.path):
		c.writes.Add(1)
		select {
		case <-c.first:
		case <-time.After(10 * time.Second): // a write has 30 s
		}
	}
	return c.next.RoundTrip(r)
}

// Two hundred machines that ask two replicas at once are all admitted, by few writes of
// the list of names.
func TestAdmitsAreBatched(t *testing.T) {
	w := newWorld(t, "ortet-batch")
	const machines = 200
	var writes, before atomic.Int32
	before.Store(machines + 1) // with the list's own
	first := make(chan struct{})
	counted := rest.CopyConfig(w.least)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return counting{next, "/configmaps/" + kube.NamesName, &writes, &before, first}
	})
	w.least = counted
	replicas := []*kube.Cluster{w.open(), w.open()}
	must(t, replicas[0].Prepare(w.ctx))
	var group sync.WaitGroup
	for i := range machines {
		m := w.member(fmt.Sprintf("batch%04d", i), fmt.Sprint(i), fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i))
		group.Go(func() {
			if _, err := replicas[i%2].Admit(w.ctx, m, wire.Kubelet, admission.NodeState{Exists: true}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	list, err := w.admin.CoreV1().ConfigMaps(w.namespace).Get(w.ctx, kube.NamesName, metav1.GetOptions{})
	must(t, err)
	for i := range machines {
		if list.Data[fmt.Sprintf("batch%04d", i)] == "" {
			t.Errorf("machine %d is not on the list", i)
		}
	}
	if n := writes.Load(); n > machines/4 {
		t.Errorf("%d writes for %d machines", n, machines)
	} else {
		t.Logf("%d writes for %d machines", n, machines)
	}
}

// Nodes that are there when the list is made are on it, without a machine: they may
// register again, and nobody takes them for admitted.
func TestListBeginsWithTheNodesThatAreThere(t *testing.T) {
	w := newWorld(t, "ortet-begins")
	w.nodeReady("begins-0", "")
	w.nodeReady("begins-1", "azure:///subscriptions/s/x")
	c := w.open()
	must(t, c.Prepare(w.ctx))
	must(t, c.Prepare(w.ctx))
	list, err := w.admin.CoreV1().ConfigMaps(w.namespace).Get(w.ctx, kube.NamesName, metav1.GetOptions{})
	must(t, err)
	if text, ok := list.Data["begins-0"]; !ok || text != "" {
		t.Errorf("the list: %v", list.Data)
	}
	nodes, err := c.Admitted(w.ctx)
	must(t, err)
	for _, n := range nodes {
		if n.VMID != "" || n.Name == "begins-0" {
			t.Errorf("%+v", n)
		}
	}
}

// What a node tells is kept as the last that it told, by machine and kind.
func TestTell(t *testing.T) {
	w := newWorld(t, "ortet-told")
	c := w.open()
	m := w.member("told00001", "1", machineA)
	for _, reason := range []string{"First", "Second"} {
		must(t, c.Tell(w.ctx, m, &wire.Verdict{Outcome: wire.Failed, Reason: reason}, nil))
	}
	must(t, c.Tell(w.ctx, m, nil, &wire.BootReport{Version: 1}))
	list, err := w.admin.CoreV1().ConfigMaps(w.namespace).List(w.ctx, metav1.ListOptions{LabelSelector: kube.LabelTold})
	must(t, err)
	if len(list.Items) != 2 {
		t.Fatalf("%d ConfigMaps", len(list.Items))
	}
	for _, m := range list.Items {
		kind := m.Labels[kube.LabelTold]
		if m.Annotations["ortet.io/node"] != "told00001" || m.Annotations["ortet.io/vm-id"] != machineA || m.Annotations["ortet.io/pool"] != pool || m.Data[kind] == "" {
			t.Errorf("%+v", m)
		}
		if kind == kube.ToldVerdict && !strings.Contains(m.Data[kind], "Second") {
			t.Errorf("not the last: %s", m.Data[kind])
		}
	}
	if err := c.Tell(w.ctx, m, nil, nil); !fleet.Is(err, fleet.KindInvalid) {
		t.Errorf("nothing told: %v", err)
	}
	big := &wire.Verdict{Message: strings.Repeat("x", 300<<10)}
	if err := c.Tell(w.ctx, m, big, nil); !fleet.Is(err, fleet.KindInvalid) {
		t.Errorf("too much told: %v", err)
	}
}

// One replica leads; when it ends, another does.
func TestLead(t *testing.T) {
	w := newWorld(t, "ortet-lead")
	first, second := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan error, 2)
	lead := func(ctx context.Context, who string, led chan struct{}) {
		ended <- w.open().Lead(ctx, who, func(ctx context.Context) { close(led); <-ctx.Done() })
	}
	go lead(ctx, "a", first)
	<-first
	later, stop := context.WithCancel(w.ctx)
	go lead(later, "b", second)
	select {
	case <-second:
		t.Error("two lead")
	case <-time.After(3 * time.Second):
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	w.eventually("the other to lead", func() bool {
		select {
		case <-second:
			return true
		default:
			return false
		}
	})
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

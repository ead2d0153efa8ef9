package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/events"
	"github.com/ortet/ortet/internal/node/join"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
)

const (
	evictions     = 20
	evictionPods  = 30 // of a node, as many as small ones have
	evictionSpace = "default"
)

// evictionNotice is from the moment at which Azure tells a machine that it is evicted
// until the first pod is told to end: by the agent's own watcher, `ortet admission` and
// a real API server. A pod counts as told once its deletion is in the API.
func evictionNotice(ctx context.Context, _ options) (_ []figure, err error) {
	s, err := newAdmissionSite(ctx, evictions, func(body map[string]any) {
		profile := body["properties"].(map[string]any)["virtualMachineProfile"].(map[string]any)
		profile["priority"], profile["evictionPolicy"] = "Spot", "Delete"
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var each []time.Duration
	for i := range evictions {
		// Notices come at any moment of the watcher's second.
		took, err := s.evict(ctx, i, time.Duration(i)*time.Second/evictions)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.hosts[i], err)
		}
		each = append(each, took)
	}
	return []figure{
		free("p50", percentile(each, 50).Seconds(), "s"),
		atMost("max", percentile(each, 100).Seconds(), "s", 1.5),
	}, nil
}

// evict makes a node of the i-th machine, with pods on it, and evicts it so long after
// its watcher has begun.
func (s *admissionSite) evict(ctx context.Context, i int, phase time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	host := s.hosts[i]
	node := strings.ToLower(host)
	computer := s.machines.get(host)
	if err := s.makeNode(ctx, node, computer.ResourceID); err != nil {
		return 0, err
	}
	pods, err := s.client.CoreV1().Pods(evictionSpace).Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return 0, err
	}
	defer pods.Stop()
	client, err := s.agent(i)
	if err != nil {
		return 0, err
	}
	root := filepath.Join(s.dir, "nodes", host)
	kubeconfig, err := s.cp.KubeconfigFor(controlplane.Client{User: "system:node:" + node, Groups: []string{"system:nodes"}})
	if err != nil {
		return 0, err
	}
	file := filepath.Join(root, "etc", "kubernetes", "kubelet.conf")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, kubeconfig, 0o600)); err != nil {
		return 0, err
	}
	watching := make(chan struct{})
	ended := make(chan struct{})
	watcher, stop := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		events.Run(watcher, events.Options{
			State: filepath.Join(root, "events.json"), VMID: computer.VMID, BootID: "bench", Metadata: s.ask(host), Server: leaver{client},
			Kubernetes: bootstrap.APIServer(root).Ask,
			Ready:      func() { close(watching) }, Log: slog.New(slog.DiscardHandler),
		})
	}()
	defer func() {
		stop()
		<-ended
	}()
	<-watching
	if err := wait(ctx, 2*time.Second+phase); err != nil { // it has switched events on by then
		return 0, err
	}
	began := time.Now()
	if err := s.cloud.Evict(computer.ResourceID); err != nil {
		return 0, err
	}
	for {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("no pod was told to end: %w", ctx.Err())
		case e, ok := <-pods.ResultChan():
			if !ok {
				return 0, errors.New("the watch of pods ended")
			}
			if p, ok := e.Object.(*corev1.Pod); e.Type == watch.Deleted || ok && p.DeletionTimestamp != nil {
				return time.Since(began), nil
			}
		}
	}
}

// makeNode makes a Ready Node with pods that are bound to it.
func (s *admissionSite) makeNode(ctx context.Context, host, instance string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host}, Spec: corev1.NodeSpec{ProviderID: "azure://" + instance}}
	node, err := s.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// Others write to Nodes too.
	ready := `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady"}]}}`
	if _, err := s.client.CoreV1().Nodes().Patch(ctx, host, types.StrategicMergePatchType, []byte(ready), metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	controller := true
	for n := range evictionPods {
		pod := &corev1.Pod{
			// Somebody would make it again.
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", host, n), OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: host, UID: node.UID, Controller: &controller}}},
			Spec:       corev1.PodSpec{NodeName: host, Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}, ServiceAccountName: "default", AutomountServiceAccountToken: new(bool)},
		}
		if _, err := s.client.CoreV1().Pods(evictionSpace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// ask is a machine's metadata service, as its watcher asks it.
func (s *admissionSite) ask(host string) events.AskMetadata {
	return func(ctx context.Context, method, path string, body []byte) (bootstrap.Answer, error) {
		request, err := http.NewRequestWithContext(ctx, method, s.metadata.URL+"/"+host+path, bytes.NewReader(body))
		if err != nil {
			return bootstrap.Answer{}, err
		}
		request.Header.Set("Metadata", "true")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return bootstrap.Answer{}, err
		}
		r := bootstrap.Answer{Code: answer.StatusCode}
		r.Date, _ = http.ParseTime(answer.Header.Get("Date")) // zero where there is none
		r.Body, err = io.ReadAll(io.LimitReader(answer.Body, 1<<20))
		return r, errors.Join(err, answer.Body.Close())
	}
}

// A leaver is the admission server to a watcher whose machine has no units.
type leaver struct{ *join.Client }

func (l leaver) Leave(ctx context.Context, r wire.LeaveRequest) (wire.Leave, error) {
	return l.Client.Leave(ctx, r)
}
func (l leaver) Depart(ctx context.Context, cause string) error { return l.Left(ctx, cause) }
func (leaver) Rejoin(context.Context) error                     { return nil }

func (m *paperMachines) get(host string) azsim.Computer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[host]
}

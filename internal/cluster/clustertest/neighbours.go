package clustertest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
)

const kuredAnnotation = "weave.works/kured-node-lock"

// kured installs kured's DaemonSet where its manifest does, without nodes.
func (w *world) kured(args ...string) {
	w.Helper()
	_, err := w.admin.AppsV1().DaemonSets("kube-system").Create(w.ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "kured", Annotations: map[string]string{"theirs": "stays"}},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "kured"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"name": "kured"}},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"clustertest/never": "true"},
					Containers:   []corev1.Container{{Name: "kured", Image: "example.invalid/kured", Command: append([]string{"/usr/bin/kured"}, args...)}},
				},
			},
		},
	}, metav1.CreateOptions{})
	w.must(err, "install kured")
	w.Cleanup(func() {
		err := w.admin.AppsV1().DaemonSets("kube-system").Delete(context.WithoutCancel(w.ctx), "kured", metav1.DeleteOptions{})
		if err != nil {
			w.Errorf("remove kured: %v", err)
		}
	})
}

func (w *world) setLock(value string) {
	w.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{kuredAnnotation: value}}})
	w.must(err, "encode")
	_, err = w.admin.AppsV1().DaemonSets("kube-system").Patch(w.ctx, "kured", types.MergePatchType, patch, metav1.PatchOptions{})
	w.must(err, "set kured's lock")
}

func (w *world) readLock() (value string, there bool) {
	w.Helper()
	set, err := w.admin.AppsV1().DaemonSets("kube-system").Get(w.ctx, "kured", metav1.GetOptions{})
	w.must(err, "read kured")
	if set.Annotations["theirs"] != "stays" {
		w.Errorf("annotations of kured's own: %v", set.Annotations)
	}
	value, there = set.Annotations[kuredAnnotation]
	return value, there
}

// kuredOne is kured's lock for one node, as kured reads it.
type kuredOne struct {
	NodeID  string        `json:"nodeID"`
	Created time.Time     `json:"created"`
	TTL     time.Duration `json:"TTL"`
}

func kuredAbsent(w *world) {
	known, err := w.under.HoldReboots(w.ctx, w.name, time.Minute)
	w.must(err, "hold")
	if known {
		w.Error("kured is known, though there is none")
	}
	w.must(w.under.ReleaseReboots(w.ctx, w.name), "release")
}

// ourLock returns the lock, which has to be the holder's.
func ourLock(w *world, holder string) kuredOne {
	w.Helper()
	value, _ := w.readLock()
	var lock kuredOne
	w.must(json.Unmarshal([]byte(value), &lock), "read the lock as kured does")
	if lock.NodeID != "ortet/"+holder {
		w.Errorf("the lock is %s", value)
	}
	return lock
}

// holdOver takes the lock over a value that is there; want is KindUnknown where
// that has to succeed.
func holdOver(w *world, value string, want fleet.Kind) {
	w.Helper()
	w.setLock(value)
	known, err := w.under.HoldReboots(w.ctx, w.name, time.Minute)
	if !known {
		w.Errorf("kured is not known")
	}
	if fleet.KindOf(err) != want || err != nil && want == fleet.KindUnknown {
		w.Errorf("over %s: got %v, want kind %q", value, err, want)
	}
	if want != fleet.KindUnknown {
		if now, _ := w.readLock(); now != value {
			w.Errorf("a lock that is not ours changed from %s to %s", value, now)
		}
	}
}

func kuredLockOf(node string, age, ttl time.Duration) string {
	return fmt.Sprintf(`{"nodeID":%q,"metadata":{"unschedulable":false},"created":%q,"TTL":%d}`,
		node, time.Now().Add(-age).UTC().Format(time.RFC3339Nano), ttl)
}

func kuredLock(w *world) {
	w.kured()
	known, err := w.under.HoldReboots(w.ctx, w.name, time.Minute)
	w.must(err, "hold")
	if !known {
		w.Fatal("kured is not known")
	}
	first := ourLock(w, w.name)
	if first.TTL != time.Minute || time.Since(first.Created) > time.Hour {
		w.Errorf("%+v", first)
	}
	_, err = w.under.HoldReboots(w.ctx, w.name, 2*time.Minute)
	w.must(err, "renew")
	if again := ourLock(w, w.name); again.TTL != 2*time.Minute || again.Created.Before(first.Created) {
		w.Errorf("renewed: %+v", again)
	}
	_, err = w.under.HoldReboots(w.ctx, "another", time.Minute)
	w.wantKind(err, fleet.KindHeld, "hold beside another of ours")
	w.must(w.under.ReleaseReboots(w.ctx, "another"), "release of what another holds")
	ourLock(w, w.name)
	w.must(w.under.ReleaseReboots(w.ctx, w.name), "release")
	if value, there := w.readLock(); there {
		w.Errorf("left over: %s", value)
	}
	w.must(w.under.ReleaseReboots(w.ctx, w.name), "release again")

	holdOver(w, kuredLockOf("node1", time.Hour, 0), fleet.KindHeld)
	holdOver(w, kuredLockOf("node1", time.Minute, time.Hour), fleet.KindHeld)
	holdOver(w, kuredLockOf("node1", time.Hour, time.Minute), fleet.KindUnknown)
	w.must(w.under.ReleaseReboots(w.ctx, w.name), "release")
	holdOver(w, "not JSON", fleet.KindInvalid)
	w.setLock(kuredLockOf("node1", time.Hour, 0))
	w.must(w.under.ReleaseReboots(w.ctx, w.name), "release of a node's lock")
	if value, _ := w.readLock(); !strings.Contains(value, "node1") {
		w.Errorf("a node's lock was released: %q", value)
	}
}

// kuredSeveral is kured with --concurrency: its lock has several places, and
// none may be left.
func kuredSeveral(w *world) {
	w.kured("--reboot-sentinel=/sentinel/reboot-required", "--concurrency=2")
	known, err := w.under.HoldReboots(w.ctx, w.name, time.Minute)
	w.must(err, "hold")
	value, _ := w.readLock()
	var several struct {
		MaxOwners int        `json:"maxOwners"`
		Locks     []kuredOne `json:"locks"`
	}
	w.must(json.Unmarshal([]byte(value), &several), "read the locks as kured does")
	if !known || several.MaxOwners != 2 || len(several.Locks) != 2 || several.Locks[1].NodeID != "ortet/"+w.name {
		w.Errorf("the lock is %s", value)
	}
	w.must(w.under.ReleaseReboots(w.ctx, w.name), "release")
	if value, there := w.readLock(); there {
		w.Errorf("left over: %s", value)
	}
	holdOver(w, fmt.Sprintf(`{"maxOwners":2,"locks":[%s]}`, kuredLockOf("node1", time.Minute, 0)), fleet.KindHeld)
	holdOver(w, fmt.Sprintf(`{"maxOwners":2,"locks":[%s,%s]}`, kuredLockOf("node1", time.Hour, time.Minute), kuredLockOf("node2", time.Minute, 0)), fleet.KindHeld)
	holdOver(w, fmt.Sprintf(`{"maxOwners":2,"locks":[%s]}`, kuredLockOf("node1", time.Hour, time.Minute)), fleet.KindUnknown)
	w.must(w.under.ReleaseReboots(w.ctx, w.name), "release")
	holdOver(w, `{"maxOwners":2,"locks":null}`, fleet.KindUnknown)
}

func accessesDenied(w *world) {
	denied, err := w.under.Denied(w.ctx, nil)
	w.must(err, "ask nothing")
	if len(denied) != 0 {
		w.Errorf("%v", denied)
	}
	w.must(w.under.Annotate(w.ctx, w.node("", nil), map[string]*string{"a": ptr("b")}), "use what is allowed")
	asked := []cluster.Access{
		{Verb: "get", Resource: "nodes"},
		{Verb: "patch", Resource: "nodes"},
	}
	denied, err = w.under.Denied(w.ctx, asked)
	w.must(err, "ask")
	if len(denied) != 0 {
		w.Errorf("denied: %v, though it just worked", denied)
	}
}

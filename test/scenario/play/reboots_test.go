package play

import (
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// locked has kured's lock held by somebody for so long; "" frees it.
func locked(holder string, ttl time.Duration) func(*world) {
	return func(w *world) {
		text, err := json.Marshal(object{"nodeID": holder, "created": time.Now().UTC(), "TTL": ttl})
		if err != nil {
			panic(err)
		}
		w.kube.Change("daemonsets", "kube-system", "kured", func(o runtime.Object) {
			o.(*appsv1.DaemonSet).Annotations = map[string]string{kuredLock: string(text)}
		})
	}
}

// lockChanged is a change of kured's lock, as it was just served.
func lockChanged(holder string) func(*world, *process) {
	return func(w *world, p *process) {
		before, _ := w.rebootLockNow()
		locked(holder, 3*time.Hour)(w)
		after, _ := w.rebootLockNow()
		w.judgeRebootLock(p, before, after)
	}
}

func TestRulesOfReboots(t *testing.T) {
	const story = "pool instances=3 kured rebooting=10m\ncapture\n"
	held := func(w *world) { onRecord(w, "cordon", "stop", "attach", "reboots"); locked("ortet/c1", 3*time.Hour)(w) }
	free := func(w *world) { onRecord(w, "reboots"); time.Sleep(10*time.Minute + time.Second) }
	judged(t, []ruling{
		{"no reboot beside a copy", story, all(guarded, held), locked("pool1000002", 0), attach(1, maxLUN), nil, "while kured may reboot it"},
		{"a lock that ran out is none", story, all(guarded, held), func(*world) { time.Sleep(4 * time.Hour) }, attach(1, maxLUN), nil, "while kured may reboot it"},
		{"a reboot is waited for", story, free, locked("pool2000000", 0), lockChanged("ortet/c1"), nil, "takes kured's lock from pool2000000"},
		{"the lock is written down", story, free, func(w *world) { onRecord(w) }, lockChanged("ortet/c1"), nil, "has not written down"},
		{"the lock is kept beside a copy", story, held, attached(1), lockChanged(""), nil, "gives kured's lock back"},
		{"the lock lasts as long as the pod", story, all(held, pod), locked("ortet/c1", 10*time.Minute),
			func(w *world, p *process) { w.judgePod(p) }, nil, "and kured's lock runs out"},
	})
}

// pod is ours, and may work for an hour.
func pod(w *world) {
	hour := int64(3600)
	w.kube.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ortet-generalize"},
		Spec: corev1.PodSpec{NodeName: w.node(1), ActiveDeadlineSeconds: &hour, Containers: []corev1.Container{{Name: "c", Command: []string{"ortet-node", "--lun", "3"}}}}})
}

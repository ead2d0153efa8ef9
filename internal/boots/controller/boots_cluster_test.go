//go:build e2e

package controller

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/cluster/conversion"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/controlplane"
)

// leave puts a value into the annotation of a Node with the credentials of a kubelet.
func (s *site) leave(t *testing.T, kubelet, node, value string) error {
	t.Helper()
	config, err := s.as(controlplane.Client{User: "system:node:" + kubelet, Groups: []string{"system:nodes"}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{wire.BootAnnotation: value}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// pod puts a pod on a node, of which a container runs since then.
func (s *site) pod(t *testing.T, node string, since time.Time) {
	t.Helper()
	pods := s.admin.CoreV1().Pods("default")
	until(t, "the namespace has its service account", func() (bool, error) {
		_, err := s.admin.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil, err
	})
	p, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "on-" + node},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}}}}
	if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *site) hasReport(t *testing.T, b fleet.Boot) bool {
	t.Helper()
	n, err := s.admin.CoreV1().Nodes().Get(t.Context(), strings.ToLower(b.HostName), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, has := n.Annotations[wire.BootAnnotation]
	return has
}

func (s *site) storedBoots(t *testing.T) map[string]assess.BootRecord {
	t.Helper()
	list, err := s.admin.CoreV1().ConfigMaps(s.space).List(t.Context(), metav1.ListOptions{LabelSelector: assess.BootLabel + "=" + assess.BootValue})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]assess.BootRecord{}
	for i := range list.Items {
		record, report, err := assess.ReadBoot(conversion.Record(&list.Items[i]))
		if err != nil {
			t.Fatal(err)
		}
		if report.BootID != record.BootID || len(report.Units) != 2 || len(list.Items[i].OwnerReferences) > 0 {
			t.Errorf("stored: %+v, with %+v", record, report)
		}
		out[record.Node] = record
	}
	if len(out) != len(list.Items) {
		t.Errorf("%d boots are stored of %d nodes", len(list.Items), len(out))
	}
	return out
}

func (s *site) refusals(t *testing.T, b fleet.Boot) []string {
	t.Helper()
	list, err := s.admin.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=BootReportRefused,involvedObject.name=" + strings.ToLower(b.HostName)})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		out = append(out, e.Message)
	}
	return out
}

func TestBootsAreKept(t *testing.T) {
	s := newSite(t)
	yes, no := true, false
	of := func(version string) func(*fleet.Boot) {
		return func(b *fleet.Boot) { b.Image = galleryOf + version }
	}
	good, other, bomb, late := s.machine(t, 0, &yes, of("1.0.0")), s.machine(t, 1, &yes), s.machine(t, 2, &yes), s.machine(t, 3, &no, of("1.0.0"))
	names := []string{strings.ToLower(good.HostName), strings.ToLower(other.HostName), strings.ToLower(bomb.HostName), strings.ToLower(late.HostName)}
	s.pod(t, names[0], good.Created.Add(150*time.Second))
	s.pod(t, names[3], late.Created.Add(160*time.Second))

	// A kubelet may leave one on its own Node, and on no other's.
	if err := s.leave(t, names[1], names[0], encoded(t, bootOf(good))); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet writes to another's Node: %v", err)
	}
	bombed := "v1:" + base64.StdEncoding.EncodeToString([]byte("no gzip\x1b[2J"))
	for i, value := range []string{encoded(t, bootOf(good)), encoded(t, bootOf(good)), bombed, encoded(t, bootOf(late))} {
		if err := s.leave(t, names[i], names[i], value); err != nil {
			t.Fatal(err)
		}
	}
	// No instance of the cloud.
	if _, err := s.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stranger", Annotations: map[string]string{wire.BootAnnotation: encoded(t, bootOf(good))}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	metrics, stop := s.start(t, "first")
	until(t, "three reports are taken away", func() (bool, error) {
		return !s.hasReport(t, good) && !s.hasReport(t, other) && !s.hasReport(t, bomb), nil
	})
	stored := s.storedBoots(t)
	r, ok := stored[names[0]]
	if len(stored) != 1 || !ok {
		t.Fatalf("stored: %+v", stored)
	}
	if !r.Pool.Equal(somePool) || r.VMID != good.VMID || r.ImageVersion() != "1.0.0" || !r.Created.Equal(good.Created) || r.NodeCreated.IsZero() || r.NodeReady.IsZero() ||
		!r.FirstPod.Equal(good.Created.Add(150*time.Second)) {
		t.Errorf("stored: %+v", r)
	}
	if why := s.refusals(t, other); len(why) != 1 || !strings.Contains(why[0], "it is of the machine "+good.VMID) {
		t.Errorf("the report of another machine: %q", why)
	}
	if why := s.refusals(t, bomb); len(why) != 1 || !strings.Contains(why[0], "unpack") {
		t.Errorf("a report that is none: %q", why)
	}
	if why := s.refusals(t, good); len(why) != 0 {
		t.Errorf("a good report: %q", why)
	}
	if !s.hasReport(t, late) {
		t.Error("a report is taken before its Node is Ready")
	}
	if n, err := s.admin.CoreV1().Nodes().Get(t.Context(), "stranger", metav1.GetOptions{}); err != nil || n.Annotations[wire.BootAnnotation] == "" {
		t.Errorf("the report of a node that may yet be known is gone (%v)", err)
	}
	counted := func(n int) []string {
		return []string{
			fmt.Sprintf(`ortet_boot_total_seconds_count{image="1.0.0",pool="pool1"} %d`, n),
			fmt.Sprintf(`ortet_boot_stage_seconds_count{image="1.0.0",pool="pool1",stage="kubelet"} %d`, n), "ortet_boot_reports_refused_total 2",
		}
	}
	shows := func(wanted []string) {
		t.Helper()
		var text string
		defer func() {
			if t.Failed() {
				t.Logf("the metrics:\n%s", grep(text, "ortet_boot_"))
			}
		}()
		until(t, "the metrics have it", func() (bool, error) {
			text = scrape(t, metrics)
			return !slices.ContainsFunc(wanted, func(want string) bool { return !strings.Contains(text, want) }), nil
		})
	}
	shows(counted(1))

	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()}
	s.asKubelet(t, names[3], corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}})
	until(t, "the report is taken once its Node is Ready", func() (bool, error) { return !s.hasReport(t, late), nil })
	if r := s.storedBoots(t)[names[3]]; !r.NodeReady.Equal(ready.LastTransitionTime.Truncate(time.Second)) || r.FirstPod.IsZero() {
		t.Errorf("stored: %+v", r)
	}
	shows(counted(2))
	stop()

	// What the first controller kept the second finds, and only takes away.
	if err := s.leave(t, names[0], names[0], encoded(t, bootOf(good))); err != nil {
		t.Fatal(err)
	}
	metrics, stop = s.start(t, "second")
	defer stop()
	until(t, "the report is taken away again", func() (bool, error) { return !s.hasReport(t, good), nil })
	if n := len(s.storedBoots(t)); n != 2 {
		t.Errorf("%d boots are stored", n)
	}
	if text := scrape(t, metrics); strings.Contains(text, "ortet_boot_total_seconds_count") {
		t.Errorf("it is counted again:\n%s", grep(text, "ortet_boot_total"))
	}
}

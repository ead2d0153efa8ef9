package kubesim_test

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/test/kubesim"
)

// What a capture in a play costs is mostly these requests, through client-go.

func BenchmarkGetNode(b *testing.B) {
	var s kubesim.Server
	s.Put(node("n"))
	c := client(b, &s, "me")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.CoreV1().Nodes().Get(b.Context(), "n", metav1.GetOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPatchNode(b *testing.B) {
	var s kubesim.Server
	s.Put(node("n"))
	c := client(b, &s, "me")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"a":"%d"}},"spec":{"unschedulable":%t}}`, i, i%2 == 0)
		if _, err := c.CoreV1().Nodes().Patch(b.Context(), "n", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkListPods lists the 500 pods of one node of three.
func BenchmarkListPods(b *testing.B) {
	var s kubesim.Server
	for i := range 1500 {
		s.Put(pod("ns", fmt.Sprintf("p-%d", i), fmt.Sprintf("n-%d", i%3)))
	}
	c := client(b, &s, "me")
	b.ReportAllocs()
	for b.Loop() {
		list, err := c.CoreV1().Pods("").List(b.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n-1"})
		if err != nil || len(list.Items) != 500 {
			b.Fatal(len(list.Items), err)
		}
	}
}

func BenchmarkPutLease(b *testing.B) {
	var s kubesim.Server
	c := client(b, &s, "me").CoordinationV1().Leases("default")
	lease, err := c.Create(b.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, metav1.CreateOptions{})
	must(b, err)
	b.ReportAllocs()
	for b.Loop() {
		at := metav1.NewMicroTime(time.Now())
		lease.Spec.RenewTime = &at
		if lease, err = c.Update(b.Context(), lease, metav1.UpdateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEvict(b *testing.B) {
	var s kubesim.Server
	c := client(b, &s, "me")
	b.ReportAllocs()
	for b.Loop() {
		s.Put(pod("ns", "p", "n"))
		if err := c.CoreV1().Pods("ns").EvictV1(b.Context(), eviction("ns", "p", nil)); err != nil {
			b.Fatal(err)
		}
		s.Remove("pods", "ns", "p")
	}
}

func BenchmarkServer(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var s kubesim.Server
		s.Put(node("n"))
	}
}

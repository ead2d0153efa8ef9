package kube

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/fleet"
)

// askedDirectory is a directory that counts.
type askedDirectory struct {
	looks  int
	member fleet.Member
	err    error
}

func (d *askedDirectory) Member(context.Context, fleet.ResourceID) (fleet.Member, error) {
	d.looks++
	return d.member, d.err
}

// Who has a node's certificate asks for ten thousand more: Azure is looked at some times,
// and other machines' requests, which are decided by the same workers, wait for none of
// it.
func TestNodeThatAsksAllTheTime(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	pool := fleet.ResourceID("/subscriptions/1/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p")
	m := fleet.Member{Pool: pool, Instance: pool + "/virtualMachines/1", HostName: "n", VMID: "vm-a"}
	ca, _ := authority(t, "root", nil, nil)
	c, err := New(Config{REST: &rest.Config{Host: "https://127.0.0.1:1"}, Server: "https://127.0.0.1:1", CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	admission := admittedOf(m, now)
	admission.Certificates = ""
	var pools []string
	s := newSeal(now, 0)
	c.seal.Store(s)
	names := &corev1.ConfigMap{Data: map[string]string{"n": s.entry("n", admission, &pools)}}
	names.Annotations = map[string]string{annotationPools: fmt.Sprintf("[%q]", pools[0])}
	c.names.saw(names)
	w, err := newWatched(c)
	if err != nil {
		t.Fatal(err)
	}
	azure := &askedDirectory{member: m}
	r := &run{cluster: c, watched: w, looks: &looks{directory: azure, now: c.now, by: map[machine]*looked{}}}
	ask := csr{signer: certificatesv1.KubeletServingSignerName, username: "system:node:n", groups: []string{nodesGroup}}
	facts := func() facts {
		t.Helper()
		c.names.saw(names) // which others have read
		f, err := r.facts(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for range 10_000 {
		if f := facts(); f.member == nil || f.member.VMID != "vm-a" {
			t.Fatalf("%+v", f)
		}
		now = now.Add(6 * time.Millisecond) // a minute
	}
	if want := lookBurst + 4; azure.looks > want {
		t.Errorf("Azure was asked %d times, want %d at most", azure.looks, want)
	}
	// What Azure says otherwise meanwhile is known a moment later.
	azure.member.VMID, azure.looks = "vm-b", 0
	now = now.Add(lookEvery)
	if member, err := r.looks.at(t.Context(), machine{m.Instance, m.VMID}); err != nil || member.VMID != "vm-b" || azure.looks != 1 {
		t.Errorf("%+v, %v, after %d looks", member, err, azure.looks)
	}
	// An answer does not outlast Azure's silence.
	azure.err = &fleet.Error{Kind: fleet.KindTransient, Err: errors.New("away")}
	now = now.Add(lookFor)
	for range 10 {
		if member, err := r.looks.at(t.Context(), machine{m.Instance, m.VMID}); err == nil {
			t.Fatalf("%+v of Azure, which is away", member)
		}
	}
	// Nor is it another machine's.
	azure.err = nil
	if member, err := r.looks.at(t.Context(), machine{m.Instance, "vm-b"}); err != nil || member == nil {
		t.Errorf("the next machine in its place: %v, %v", member, err)
	}
}

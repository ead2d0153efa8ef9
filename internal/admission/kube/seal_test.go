package kube

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newSeal returns one for which records without a seal count for a while.
func newSeal(now time.Time, unsealed time.Duration) *seal {
	return &seal{key: []byte(strings.Repeat("k", 32)), namespace: "ortet-system", until: now.Add(unsealed), now: func() time.Time { return now }}
}

func recordOf(t *testing.T, s *seal, of token) *corev1.ConfigMap {
	t.Helper()
	c := &Cluster{namespace: s.namespace}
	return c.record(s, of)
}

var (
	noon    = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ofNode  = token{id: "abcdef", node: "pool1000001", vmID: "vm-a", instance: "/i", pool: "/p", distribution: "kubelet", made: noon, expires: noon.Add(10 * time.Minute)}
	forNode = admitted{VMID: "vm-a", Pool: scaleSet, Instance: scaleSet + "/virtualMachines/1", At: noon, Certificates: "a,b", Newest: noon}
)

// Whoever may write ConfigMaps writes a token's record, with everything in it but a
// seal, or with that of another record.
func TestForgedTokenRecordIsNotBelieved(t *testing.T) {
	s := newSeal(noon, 0)
	written := recordOf(t, s, ofNode)
	if got, err := tokenOf(s, written); err != nil || got != ofNode {
		t.Fatalf("our own: %+v, %v", got, err)
	}
	other := newSeal(noon, 0)
	other.namespace = "elsewhere"
	for name, forge := range map[string]func(*corev1.ConfigMap){
		"without a seal": func(m *corev1.ConfigMap) { delete(m.Data, "seal") },
		"an empty seal":  func(m *corev1.ConfigMap) { m.Data["seal"] = "" },
		"another key's": func(m *corev1.ConfigMap) {
			m.Data["seal"] = (&seal{key: []byte("x"), namespace: s.namespace}).token(ofNode)
		},
		"another namespace's":      func(m *corev1.ConfigMap) { m.Data["seal"] = other.token(ofNode) },
		"under another token's id": func(m *corev1.ConfigMap) { m.Name = recordName("ghijkl") },
		"an admission's seal": func(m *corev1.ConfigMap) {
			m.Data["seal"] = strings.SplitAfter(s.entry("n", forNode, new([]string)), sealMark)[1]
		},
		"a seal that cannot be read": func(m *corev1.ConfigMap) { m.Data["seal"] = "%" },
	} {
		m := written.DeepCopy()
		forge(m)
		if got, err := tokenOf(s, m); !errors.Is(err, errForged) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestChangedTokenRecordIsNotBelieved(t *testing.T) {
	s := newSeal(noon, 0)
	written := recordOf(t, s, ofNode)
	for _, field := range []string{"node", "vmId", "instance", "pool", "distribution"} {
		m := written.DeepCopy()
		m.Data[field] += "x"
		if got, err := tokenOf(s, m); !errors.Is(err, errForged) {
			t.Errorf("%s: %+v, %v", field, got, err)
		}
	}
	for field, to := range map[string]string{"expires": "2030-01-01T00:00:00Z", "made": "2020-01-01T00:00:00Z", "key": "00"} {
		m := written.DeepCopy()
		m.Data[field] = to
		if got, err := tokenOf(s, m); !errors.Is(err, errForged) {
			t.Errorf("%s: %+v, %v", field, got, err)
		}
	}
	// What is in one field is not taken for what is in the next.
	a, b := ofNode, ofNode
	a.vmID, a.instance = "vm", "-a/i"
	if s.token(a) == s.token(b) {
		t.Error("two records have one seal")
	}
	if s.token(ofNode) == s.token(token{id: ofNode.id, node: ofNode.node}) {
		t.Error("two records have one seal")
	}
}

// What stands in the list of names without our seal was not admitted: neither for what
// is asked by a certificate, nor for a name that is to be another machine's.
func TestForgedAdmissionIsNotBelieved(t *testing.T) {
	s := newSeal(noon, 0)
	pools := []string{string(scaleSet)}
	own := s.entry("n", forNode, &pools)
	list := func(text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationPools: `["` + string(scaleSet) + `"]`}}, Data: map[string]string{"n": text}}
	}
	if a, known, err := admissionIn(s, list(own), "n"); err != nil || !known || a != forNode {
		t.Fatalf("our own %q: %+v, %v, %v", own, a, known, err)
	}
	victim := forNode
	victim.Certificates = "x"
	entry, _, _ := strings.Cut(own, " "+sealMark)
	for name, text := range map[string]string{
		"without a seal":      entry,
		"another certificate": strings.Replace(own, "a,b", "x,b", 1),
		"another machine":     strings.Replace(own, "vm-a", "vm-b", 1),
		"another time":        strings.Replace(own, " 0 1 ", " 0 2 ", 1),
		"another name's":      s.entry("m", forNode, &pools),
		"another key's":       (&seal{key: []byte("x"), namespace: s.namespace}).entry("n", victim, &pools),
		"an empty seal":       entry + " " + sealMark,
	} {
		if text == own {
			t.Fatalf("%s is what we wrote", name)
		}
		if a, known, err := admissionIn(s, list(text), "n"); known {
			t.Errorf("%s: %q is believed: %+v (%v)", name, text, a, err)
		}
		// It is replaced by what is admitted next.
		change := &nameChange{name: "n", set: func(admitted) admitted { return forNode }, only: func(a admitted) bool { return a == admitted{} }}
		next, changed, err := apply(s, list(text), []*nameChange{change})
		if err != nil || !changed || !change.held || next.Data["n"] != own {
			t.Errorf("%s: %v, %v, %v", name, next.Data, changed, err)
		}
	}
	// The pool is in the seal, and not its place in a table that others may write.
	moved := list(own)
	moved.Annotations[annotationPools] = `["/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/other"]`
	if a, known, _ := admissionIn(s, moved, "n"); known {
		t.Errorf("of another pool: %+v", a)
	}
}

// Who knows a Node's name does not know the id of its token.
func TestTokenIDsCannotBeGuessed(t *testing.T) {
	s, other := newSeal(noon, 0), newSeal(noon, 0)
	other.key = []byte(strings.Repeat("o", 32))
	id := s.tokenID("pool1000001")
	if len(id) != 6 || id == "pv8bxb" || id == other.tokenID("pool1000001") || id == s.tokenID("pool1000002") || id != s.tokenID("pool1000001") {
		t.Errorf("%q, with another key %q", id, other.tokenID("pool1000001"))
	}
}

// An earlier version's records count for a while, and are sealed meanwhile; then they
// are as forged ones.
func TestRecordsOfAnEarlierVersionCount(t *testing.T) {
	soon, late := newSeal(noon, unsealedFor), newSeal(noon, -time.Second)
	record := recordOf(t, soon, ofNode)
	delete(record.Data, "seal")
	pools := []string{string(scaleSet)}
	entry := forNode.entry(&pools)
	if got, err := tokenOf(soon, record); err != nil || got != ofNode {
		t.Errorf("a token: %+v, %v", got, err)
	}
	if _, err := tokenOf(late, record); !errors.Is(err, errForged) {
		t.Errorf("a token, later: %v", err)
	}
	if got, err := soon.parse("n", entry, pools); err != nil || got != forNode {
		t.Errorf("an admission: %+v, %v", got, err)
	}
	if _, err := late.parse("n", entry, pools); !errors.Is(err, errForged) {
		t.Errorf("an admission, later: %v", err)
	}
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationPools: `["` + string(scaleSet) + `"]`}}, Data: map[string]string{"n": entry, "was-there": ""}}
	same := func(a admitted) admitted { return a }
	next, changed, err := apply(soon, list, []*nameChange{{name: "n", set: same}})
	if err != nil || !changed || next.Data["was-there"] != "" {
		t.Fatalf("%v, %v, %v", next.Data, changed, err)
	}
	if a, known, err := admissionIn(late, next, "n"); err != nil || !known || a != forNode {
		t.Errorf("sealed: %+v, %v, %v", a, known, err)
	}
}

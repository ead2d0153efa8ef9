package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

const (
	rg       = "/subscriptions/11111111-2222-4333-8444-555555555555/resourceGroups/a-resource-group-of-some-length"
	scaleSet = fleet.ResourceID(rg + "/providers/Microsoft.Compute/virtualMachineScaleSets/nodepool1-12345678-vmss")
)

func TestEntries(t *testing.T) {
	var pools []string
	for _, a := range []admitted{
		{},
		{VMID: "v1", Pool: scaleSet, Instance: scaleSet + "/virtualMachines/12", At: time.UnixMilli(1790000000123).UTC()},
		{VMID: "v2", Pool: scaleSet + "2", Instance: fleet.ResourceID(rg + "/providers/Microsoft.Compute/virtualMachines/pool_a1b2c3d4"), At: time.UnixMilli(5).UTC()},
		{VMID: "v3", Pool: scaleSet, Instance: "/subscriptions/s/resourceGroups/another/providers/Microsoft.Compute/virtualMachines/x", At: time.UnixMilli(6).UTC()},
		{VMID: "v4", Pool: scaleSet, Instance: scaleSet + "/virtualMachines/13", At: time.UnixMilli(7).UTC(), Certificates: "-"},
		{VMID: "v5", Pool: scaleSet, Instance: scaleSet + "/virtualMachines/14", At: time.UnixMilli(8).UTC(), Certificates: "a,b"},
		{VMID: "v6", Pool: scaleSet, Instance: scaleSet + "/virtualMachines/15", At: time.UnixMilli(9).UTC(), Certificates: "a,b", Newest: time.Unix(1790000000, 0).UTC()},
	} {
		text := a.entry(&pools)
		if got, err := parseEntry(text, pools); err != nil || got != a {
			t.Errorf("%q: %+v (%v), want %+v", text, got, err, a)
		}
	}
	if len(pools) != 2 {
		t.Errorf("pools: %q", pools)
	}
	for _, wrong := range []string{"v", "v 1 0", "v x 0 1", "v 1 9 1", "v 1 -1 1", "v 1 0 1 2 x", "v 1 0 1 2 3 4", "v 1 0 1 ", "v 1 0 1  3"} {
		if _, err := parseEntry(wrong, pools); err == nil {
			t.Errorf("%q was read", wrong)
		}
	}
}

func FuzzEntry(f *testing.F) {
	f.Add("aaaaaaaa-0000-4000-8000-000000000001 1790000000000 0 12")
	f.Add("v 1 1 ~x")
	f.Add("v 1 0 /x")
	f.Add("v 1 0 1 a,b")
	f.Add("v 1 0 1 a,b 1790000000")
	f.Fuzz(func(t *testing.T, text string) {
		pools := []string{string(scaleSet), "p"}
		a, err := parseEntry(text, pools)
		if err != nil {
			return
		}
		again, err := parseEntry(a.entry(&pools), pools)
		if err != nil || again != a {
			t.Errorf("%q: %+v, and then %+v (%v)", text, a, again, err)
		}
	})
}

// Five thousand nodes fit into what an object may hold; what is too much is refused,
// and names that go are taken away still.
func TestNamesAreBounded(t *testing.T) {
	m := &corev1.ConfigMap{}
	set := func(i int) *nameChange {
		return &nameChange{name: fmt.Sprintf("nodepool1-12345678-vmss%06d", i), set: func(admitted) admitted {
			return admitted{VMID: fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012d", i), Pool: scaleSet, Instance: scaleSet + fleet.ResourceID(fmt.Sprintf("/virtualMachines/%d", i)),
				At: time.UnixMilli(1790000000000), Certificates: noCertificate}
		}}
	}
	var batch []*nameChange
	for i := range 5000 {
		batch = append(batch, set(i))
	}
	m, changed, err := apply(newSeal(time.Time{}, 0), m, batch)
	if err != nil || !changed || len(m.Data) != 5000 {
		t.Fatalf("%d names: %v", len(m.Data), err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 700<<10 {
		t.Errorf("5,000 names take %d bytes", len(text))
	}
	batch = nil
	for i := range 15000 {
		batch = append(batch, set(i))
	}
	if _, _, err := apply(newSeal(time.Time{}, 0), m, batch); !errors.Is(err, errFull) {
		t.Errorf("too many names: %v", err)
	}
	// There is always room for the certificates of those that are there.
	full, _, err := apply(newSeal(time.Time{}, 0), &corev1.ConfigMap{}, batch[:5500])
	if err != nil {
		t.Fatal(err)
	}
	for i := range batch[:5500] {
		batch[i].set = func(now admitted) admitted {
			now = now.keeping(fingerprint(strings.Repeat("a", fingerprintSize)), fingerprint(strings.Repeat("b", fingerprintSize)))
			now.Newest = time.Unix(1790000000, 0).UTC()
			return now
		}
	}
	if full, changed, err = apply(newSeal(time.Time{}, 0), full, batch[:5500]); err != nil || !changed {
		t.Errorf("no room for certificates: %v", err)
	}
	if text, err := json.Marshal(full); err != nil || len(text) > 1<<20 {
		t.Errorf("5,500 names take %d bytes (%v)", len(text), err)
	}
	for i := range batch {
		batch[i] = set(i)
	}
	if _, changed, err := apply(newSeal(time.Time{}, 0), m, batch[:5000]); changed || err != nil {
		t.Errorf("what is there was written again: %v", err)
	}
	if m, changed, err := apply(newSeal(time.Time{}, 0), m, []*nameChange{{name: batch[7].name}}); !changed || err != nil || len(m.Data) != 4999 {
		t.Errorf("a name that goes: %v", err)
	}
}

func authority(t *testing.T, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, key
}

// The hash is k3s's: of one certificate that of the file, of a bundle that of its root.
func TestHashOfTheAuthority(t *testing.T) {
	root, key := authority(t, "root", nil, nil)
	middle, _ := authority(t, "middle", root, key)
	block := func(c *x509.Certificate) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	hex := func(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) }
	single := append(block(root), '\n')
	for _, c := range []struct{ bundle, hashed []byte }{
		{block(root), block(root)}, {single, single}, {append(block(middle), block(root)...), root.Raw},
	} {
		if got, err := hashCA(c.bundle); err != nil || got != hex(c.hashed) {
			t.Errorf("%s (%v)", got, err)
		}
	}
	if _, err := hashCA([]byte("no certificate")); err == nil {
		t.Error("nothing was hashed")
	}
}

func TestCameBack(t *testing.T) {
	for _, c := range []struct {
		mark, boot string
		ready      corev1.ConditionStatus
		want       bool
	}{
		{`{"cause":"Reboot","bootId":"a","cordoned":true}`, "b", corev1.ConditionTrue, true},
		{`{"cause":"Reboot","bootId":"a"}`, "b", corev1.ConditionFalse, false},
		{`{"cause":"Reboot","bootId":"a"}`, "a", corev1.ConditionTrue, false},
		{`{"cause":"Freeze"}`, "b", corev1.ConditionTrue, false},
		{`{"cause":"Reboot","bootId":"a"}`, "", corev1.ConditionTrue, false},
		{`nonsense`, "b", corev1.ConditionTrue, false},
		{"", "b", corev1.ConditionTrue, false},
	} {
		n := &corev1.Node{}
		if c.mark != "" {
			n.Annotations = map[string]string{wire.LeavingMark: c.mark}
		}
		n.Status.NodeInfo.BootID = c.boot
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: c.ready}}
		if got := cameBack(n); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

package apply

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/wire"
)

// certificate returns a self-signed one that is valid for a time from the world's start.
func certificate(t *testing.T, ca bool, valid time.Duration) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "corp.example"}, IsCA: ca, BasicConstraintsValid: true,
		NotBefore: start.Add(-24 * time.Hour), NotAfter: start.Add(valid)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestCACertificates(t *testing.T) {
	t.Parallel()
	c := func(pem string) nodeconfig.Config {
		return nodeconfig.Config{CACertificates: []nodeconfig.CACertificate{{Name: "corp", PEM: pem}}}
	}
	w := newWorld(t)
	one, two := certificate(t, true, time.Hour), certificate(t, true, time.Hour)
	w.good(1, c(one+"\n"+two), "update-ca-certificates", "restart containerd.service", "restart kubelet.service")
	if w.read("/usr/local/share/ca-certificates/ortet-corp.crt") != one || w.read("/usr/local/share/ca-certificates/ortet-corp-2.crt") != two {
		t.Error("files differ")
	}
	w.good(2, nodeconfig.Config{}, "update-ca-certificates", "restart containerd.service", "restart kubelet.service")
	w.did(w.bad(3, c(one+certificate(t, false, time.Hour)), wire.ConfigurationFailed, wire.ReasonInvalid, "corp: certificate 2 is not a CA's"))
	w.good(3, c(certificate(t, true, -time.Hour)), "update-ca-certificates", "restart containerd.service", "restart kubelet.service")
}

func TestOnlyNewComplaintsOfUnitsCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := func(text string) nodeconfig.Config {
		return nodeconfig.Config{Units: []nodeconfig.Unit{{Name: "x.service", Content: text}}}
	}
	w.write("/etc/systemd/system/x.service", "old")
	w.complaints["old"], w.complaints["new"] = "Unknown key 'old'", "Unknown key 'new'"
	w.good(1, c("# old"), "daemon-reload")
	w.did(w.bad(2, c("old new"), wire.ConfigurationFailed, wire.ReasonInvalid, "x.service: Unknown key 'new'"))
}

func TestUnitsThatDoNotFit(t *testing.T) {
	t.Parallel()
	for says, u := range map[string]nodeconfig.Unit{
		"does not exist":    {Name: "absent.service", Started: yes()},
		"no [Install]":      {Name: "x.service", Content: "[Service]\n", Enabled: yes()},
		"the Node needs":    {Name: "kubelet.service", Started: no()},
		"x.service is set":  {Name: "nginx.service", DropIns: []nodeconfig.DropIn{{Name: "a.conf"}, {Name: "a.conf"}}},
		"is no unit's name": {Name: "x.service", Content: "[Install]\nWantedBy=../../x\n", Enabled: yes()},
	} {
		w := newWorld(t)
		if says == "x.service is set" {
			says = "set twice"
		}
		w.did(w.bad(1, nodeconfig.Config{Units: []nodeconfig.Unit{u}}, wire.ConfigurationFailed, wire.ReasonInvalid, says))
	}
}

// realVerify is the world with the real systemd-analyze.
type realVerify struct{ *world }

func (r realVerify) Verify(ctx context.Context, stage string, units []string) ([]string, error) {
	return machine{}.Verify(ctx, stage, units)
}

func TestSystemdJudgesUnits(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is missing")
	}
	apply := func(c nodeconfig.Config) wire.ConfigurationAnswer {
		w := newWorld(t)
		o := w.applier().o
		o.System = realVerify{w}
		d := document(1, c)
		return New(o).Apply(t.Context(), d, w.record(d))
	}
	unit := func(content string, drop ...nodeconfig.DropIn) nodeconfig.Config {
		return nodeconfig.Config{Units: []nodeconfig.Unit{{Name: "test-unit.service", Content: content, DropIns: drop}}}
	}
	good := "[Service]\nExecStart=/bin/true\n"
	for says, c := range map[string]nodeconfig.Config{
		"Unknown key 'ExecStrt'": unit("[Service]\nExecStrt=/bin/true\n"),
		"not executable":         unit("[Service]\nExecStart=/opt/absent\n"),
		"Invalid memory limit":   unit(good, nodeconfig.DropIn{Name: "10-x.conf", Content: "[Service]\nMemoryMax=lots\n"}),
	} {
		if got := apply(c); got.Reason != wire.ReasonInvalid || !strings.Contains(got.Message, says) {
			t.Errorf("%s: %+v", says, got)
		}
	}
	c := unit("[Service]\nExecStart=/opt/brought\n", nodeconfig.DropIn{Name: "10-x.conf", Content: "[Service]\nNice=5\n"})
	c.Files = []nodeconfig.File{{Path: "/opt/brought", Mode: "0755"}}
	if got := apply(c); got.State != wire.ConfigurationApplied {
		t.Errorf("%+v", got)
	}
}

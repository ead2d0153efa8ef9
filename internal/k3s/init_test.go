package k3s_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/k3s"
)

func TestInitWritesWhatParseReads(t *testing.T) {
	o := k3s.InitOptions{Name: "my-cluster", Spec: k3s.Spec{Location: "westeurope"}, Random: strings.NewReader("0123456789")}
	text, err := k3s.Init(o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := k3s.Parse("cluster.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Spec.Pools[0]
	if c.Metadata.Name != "my-cluster" || p.Name != "agents" || *p.Count != 3 || p.Size != "Standard_D2s_v5" {
		t.Errorf("cluster is %+v", c)
	}
	if a := c.Spec.Storage.Account; a != "mycluster"+"gaytemzugu" {
		t.Errorf("account is %q", a)
	}
	if got := c.Spec.Artifacts.Placeholders(); len(got) != 3 {
		t.Errorf("placeholders are %q", got)
	}
}

// A reader removes the # of any example, and the file is still valid.
func TestExamplesInCommentsAreValid(t *testing.T) {
	text, err := k3s.Init(k3s.InitOptions{Name: "demo", Spec: k3s.Spec{Location: "westeurope"}, Random: strings.NewReader("0123456789")})
	if err != nil {
		t.Fatal(err)
	}
	lines, tried := strings.Split(string(text), "\n"), 0
	for i, line := range lines {
		name, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), ":")
		if !strings.HasPrefix(strings.TrimSpace(line), "# ") || !ok || strings.ContainsAny(name, " /") || name == "min" || name == "max" {
			continue
		}
		changed := strings.Replace(line, "# ", "", 1)
		tried++
		with := strings.Join(append(append(append([]string{}, lines[:i]...), changed), lines[i+1:]...), "\n")
		if _, err := k3s.Parse("cluster.yaml", []byte(with)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if tried < 6 {
		t.Errorf("tried %d examples", tried)
	}
}

func TestInitRefusesWhatParseRefuses(t *testing.T) {
	_, err := k3s.Init(k3s.InitOptions{Name: "Demo", Spec: k3s.Spec{Location: "westeurope"}, Random: strings.NewReader("0123456789")})
	if err == nil || !strings.Contains(err.Error(), `metadata.name: "Demo" is not valid`) {
		t.Errorf("error is %v", err)
	}
	_, err = k3s.Init(k3s.InitOptions{Name: "demo", Spec: k3s.Spec{Location: "westeurope"}, Random: bytes.NewReader(nil)})
	if err == nil || !strings.Contains(err.Error(), "cannot make up a storage account's name") {
		t.Errorf("error is %v", err)
	}
}

func TestArtifactsBlockFitsIntoFile(t *testing.T) {
	const digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	a := k3s.Artifact{URL: "http://192.0.2.1:8000/a b#c: d", SHA256: digest}
	want := k3s.Artifacts{K3s: a, Images: &a, Ortet: a, OrtetNode: a, Tailscale: &a, Version: "v1.36.3+k3s1"}
	before, rest, _ := strings.Cut(minimal, "  artifacts:\n")
	_, after, _ := strings.Cut(rest, "  pools:\n")
	manifests := []k3s.Manifest{{Name: "app", Artifact: a}, {Name: "b", Artifact: k3s.Artifact{URL: "file:///srv/b", SHA256: digest}}}
	block, err := k3s.ArtifactsBlock(want, manifests)
	if err != nil {
		t.Fatal(err)
	}
	c, err := k3s.Parse("cluster.yaml", []byte(before+string(block)+"  pools:\n"+after))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Spec.Artifacts; *got.Images != a || *got.Tailscale != a || got.K3s != a || got.Ortet != a || got.OrtetNode != a || got.Version != want.Version {
		t.Errorf("artifacts are %+v", got)
	}
	if !slices.Equal(c.Spec.Manifests, manifests) {
		t.Errorf("manifests are %+v", c.Spec.Manifests)
	}
}

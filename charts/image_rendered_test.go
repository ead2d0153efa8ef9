//go:build e2e

package charts

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// refusedImage fails unless a chart without an image of the tests' own is refused, with
// what to set.
func refusedImage(t *testing.T, says []string, args ...string) {
	t.Helper()
	out, err := bareHelm(t, append([]string{"template", "r"}, args...)...)
	for _, want := range append(says, "make image", "bin/ortet-image.tar") {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: err %v, want a refusal that says %q; got:\n%s", args, err, want, out)
		}
	}
}

func TestHole07ChartWithoutImage(t *testing.T) {
	refusedImage(t, []string{"image.repository is not set", "image.repository=REGISTRY/ortet"}, "ortet")
	refusedImage(t, []string{"image.repository is not set"}, "ortet", "--set", "image.tag=v1")
	if out, err := bareHelm(t, "template", "r", "ortet", "--set", "image.repository=registry.example/ortet,image.tag=v1,image.digest=sha256:"+strings.Repeat("c", 64)); err == nil || !strings.Contains(out, "set image.digest= for the tag") {
		t.Errorf("tag and digest: err %v; got:\n%s", err, out)
	}
	says := []string{"ortet.image is not set", "ortet.image=REGISTRY/ortet:TAG"}
	for _, set := range []string{"kamino.targetNode=" + node, "kamino.targetVMSS=ALL", "kamino.logLevel=INFO"} {
		refusedImage(t, says, "vmss-prototype", "--set", set)
	}
}

// kamino's image has no /ortet. A copy in another registry keeps its digest, and a values
// file of kamino's keeps its hash where only the repository is changed.
func TestHole11KaminosImageByDigest(t *testing.T) {
	text, err := os.ReadFile(kaminosValues)
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Kamino struct{ Container struct{ ImageHash string } }
	}
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	published := v.Kamino.Container.ImageHash
	theirs := func(set string, says ...string) {
		t.Helper()
		refusedImage(t, append(says, "ortet.image="), "vmss-prototype", "--values", kaminosValues, "--set", "kamino.targetNode="+node+","+set)
	}
	theirs("kamino.logLevel=INFO", "kamino's image by its digest")
	theirs("kamino.container.imageRegistry=myregistry.example,kamino.container.imageRepository=mirror/vmss-prototype", "myregistry.example/mirror/vmss-prototype@sha256:"+published, "kamino's image by its digest")
	theirs("kamino.container.imageRepository=team/ortet", "kamino's image by its digest")
	theirs("ortet.image=myregistry.example/ortet@sha256:"+published, "kamino's image by its digest")
	theirs("kamino.container.imageRepository=team/ortet,kamino.container.imageHash=a421ff768a798d581178626386c67117af2e2262dde334cef15d8f92df1a178f", "kamino's image by its digest")
	theirs("kamino.container.imageHash="+strings.Repeat("c", 64), "not known to be an image of Ortet", "set ortet.image=ghcr.io/jackfrancis/kamino/vmss-prototype@sha256:ccc")
	theirs("kamino.container.imageRegistry=myregistry.example,kamino.container.imageRepository=mirror/proto,kamino.container.pullByHash=false", "not known to be an image of Ortet")
	theirs("kamino.container.imageRepository=ortet:v1,kamino.container.pullByHash=false", "not known to be an image of Ortet")
}

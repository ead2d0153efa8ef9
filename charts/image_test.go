package charts

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

// Nobody publishes Ortet's image: a name in the values would be pulled, and run as root on
// nodes, from whoever registers it.
func TestHole07ChartsHaveNoDefaultImage(t *testing.T) {
	for _, chart := range []string{"ortet", "vmss-prototype"} {
		text, err := os.ReadFile(chart + "/values.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			Image  struct{ Repository, Tag, Digest string }
			Kamino struct {
				Container struct{ ImageRepository, ImageTag, ImageHash string }
			}
			Ortet struct{ Image string }
		}
		if err := yaml.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		if c := v.Kamino.Container; v.Image.Repository+v.Image.Tag+v.Image.Digest+c.ImageRepository+c.ImageTag+c.ImageHash+v.Ortet.Image != "" {
			t.Errorf("the values of chart %s name an image: %+v", chart, v)
		}
	}
}

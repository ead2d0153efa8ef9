package simulate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/manifest"
	"github.com/ortet/ortet/internal/workflow"
)

// manifests are the keys of those that are kept.
func (l ledger) manifests() (keys []string) {
	s, _ := l.kube.Get("secrets", namespace, kube.SavedName(string(l.pool))).(*corev1.Secret)
	if s == nil {
		return nil
	}
	for key := range s.Data {
		if strings.HasPrefix(key, "manifest-") {
			keys = append(keys, key)
		}
	}
	return keys
}

// What is in a version is kept with it, read by its name and by its id, and dropped with it.
func TestOutcomeManifestIsKeptWithItsVersion(t *testing.T) {
	played(t, func(l ledger) {
		var names []string
		for range 4 {
			l.run(0, Ask{Do: "capture", Again: true, History: 2})
			names = append(names, l.live())
			time.Sleep(9 * day) // versions that never were live stay a week
		}
		versions := l.versions()
		tagged := 0
		for _, v := range versions {
			if v.Tags[fleet.TagManifest] != nil {
				tagged++
			}
		}
		if keys := l.manifests(); len(versions) != 2 || tagged != 2 || len(keys) != 2 {
			t.Errorf("%d versions, %d with the tag, and what is kept: %q; want 2 of each", len(versions), tagged, keys)
		}
		if l.run(0, Ask{Do: "rollback"}); len(l.manifests()) != 2 || l.live() != names[2] {
			t.Errorf("after a rollback to %s: %q", l.live(), l.manifests())
		}
		config, err := l.config("reader", l.azure.Transport(), l.kube, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := config.Contents(l.t.Context(), l.pool, names[2])
		if err != nil {
			t.Fatal(err)
		}
		b, err := config.Contents(l.t.Context(), "", string(l.names.Definition.Child("versions", names[3])))
		if err != nil {
			t.Fatal(err)
		}
		if d := manifest.Compare(a.Manifest, b.Manifest); len(d.Packages) != 1 || d.Packages[0].Name != "capture" || d.Packages[0].From == d.Packages[0].To {
			t.Errorf("the difference of two versions: %+v", d)
		}
		if _, err := config.Contents(l.t.Context(), l.pool, names[0]); !workflow.RefusedFor(err, "NoVersion") {
			t.Errorf("a version that was pruned: %v", err)
		}
	})
}

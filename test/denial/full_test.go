package denial

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/image/plan"
)

// The donor's customData is the oldest item of a full Secret, other customData was saved
// since, and no version needs it yet: what else the capture saves does not take its place.
func TestFullSecretKeepsWhatTheCaptureSaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onGroup, onSubscription := documentedActions()
		w := newWorld(t, onGroup, onSubscription, documentedRules(true))
		name := kube.SavedName(string(pool))
		full := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kube.DefaultNamespace, Name: name, Annotations: map[string]string{}},
			Type: "ortet.io/saved", Data: map[string][]byte{}}
		put := func(kind, of, data string, year int) string {
			sum := sha256.Sum256([]byte(data))
			hash := hex.EncodeToString(sum[:])
			key := kind + "-" + hash[:16]
			full.Data[key] = []byte(data)
			full.Annotations["ortet.io/"+key] = fmt.Sprintf(`{"name":%q,"sha256":%q,"at":"%d-01-01T00:00:00Z"}`, of, hash, year)
			return key
		}
		theirs := put("customData", "", customData, 1990)
		put("customData", "", "#cloud-config\n", 1991)
		for n := range 7 {
			put("protectedSettings", "cse", fmt.Sprint(n)+strings.Repeat("x", 130<<10), 1992+n)
		}
		w.kube.Put(full)
		w.settings = strings.Repeat("y", 64<<10)
		q := fullRequest(false)
		q.NewNodes, q.Bootstrap = 0, plan.BootstrapBaked
		mustCapture(w, q)

		there := w.kube.Secret(kube.DefaultNamespace, name)
		if string(there.Data[theirs]) != customData {
			t.Errorf("the donor's customData made room; %d items are left", len(there.Data))
		}
		if len(there.Data) != len(full.Data)+1 {
			t.Errorf("%d items are left, of %d and two new ones", len(there.Data), len(full.Data))
		}
	})
}

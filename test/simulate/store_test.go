package simulate

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/image/plan"
)

// stored is how many items are in a store that is full, and how long each is.
var stored = map[string]struct{ items, bytes int }{"items": {400, 16}, "bytes": {20, 48 << 10}, "needed": {20, 48 << 10}}

// storedItem returns an item's content and key. An image version needs the first.
func (w *world) storedItem(n int) (text, key string) {
	text = fmt.Sprintf("#cloud-config of %03d", n)
	text += strings.Repeat("#", max(0, stored[w.story.Pool.Store].bytes-len(text)))
	return text, "customData-" + plan.SHA256(text)[:16]
}

// fillStore puts into the pool's Secret what earlier captures saved, the oldest first: until today,
// or in a pool without versions in two years, by a clock that was wrong.
func (w *world) fillStore() {
	of, full := stored[w.story.Pool.Store]
	if !full {
		return
	}
	s := &corev1.Secret{Type: "ortet.io/saved", Data: map[string][]byte{}}
	s.Namespace, s.Name, s.Annotations = namespace, kube.SavedName(string(w.pool)), map[string]string{}
	years := 2
	if w.story.Pool.Versions > 0 {
		years = 0
	}
	for n := range of.items {
		text, key := w.storedItem(n)
		name := ""
		if w.story.Pool.Store == "needed" {
			name = fmt.Sprint(n) // the newest of each name stays
		}
		s.Data[key] = []byte(text)
		at := w.begin.UTC().AddDate(years, 0, n-of.items).Format(time.RFC3339)
		s.Annotations["ortet.io/"+key] = fmt.Sprintf(`{"name":%q,"sha256":%q,"at":%q}`, name, plan.SHA256(text), at)
	}
	w.kube.Put(s)
}

// checkStore: of a full store the oldest items go that nothing needs, no more than what came.
func (w *world) checkStore() {
	of, full := stored[w.story.Pool.Store]
	if !full {
		return
	}
	s, _ := w.kube.Get("secrets", namespace, kube.SavedName(string(w.pool))).(*corev1.Secret)
	if s == nil {
		w.broken(3, "the store is gone")
		return
	}
	left, size := 0, 0
	for n := range of.items {
		_, key := w.storedItem(n)
		switch _, there := s.Data[key]; {
		case there:
			left++
		case n == 0 && w.story.Pool.Versions > 0:
			w.broken(3, "saved customData is gone that a version needs")
		case left > 1 || left == 1 && w.story.Pool.Versions == 0:
			w.broken(3, "saved item %d is gone, and an older one that nothing needs is there", n)
		}
	}
	for _, data := range s.Data {
		size += len(data)
	}
	if len(s.Data) < of.items || len(s.Data) > 400 || size > 960<<10 {
		w.broken(3, "the store has %d items and %d bytes", len(s.Data), size)
	}
}

package kubesim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// historyLength is the number of writes of a kind that a watch can go back at
// least; what is older has expired, as after etcd's compaction.
const historyLength = 1000

// A change is one write: old is nil for a new object, now for a deleted one.
type change struct {
	revision uint64
	old, now *entry
}

// record keeps a write for watches and wakes those that wait. The caller holds
// the lock.
func (s *Server) record(t *table, old, now *entry) {
	if len(t.history) == 2*historyLength {
		t.expired = t.history[historyLength-1].revision
		t.history = slices.Delete(t.history, 0, historyLength)
	}
	t.history = append(t.history, change{s.revision, old, now})
	s.wake()
}

// A watcher is the body of the answer to a watch: a reader of JSON frames that
// waits for writes on its reader's goroutine, without the lock.
type watcher struct {
	server    *Server
	call      *call
	table     *table
	selects   func(object) bool
	since     uint64    // resourceVersion of the last write that was seen
	until     time.Time // zero means no end
	bookmarks bool

	ctx    context.Context // the request's
	close  sync.Once
	closed chan struct{}

	frames []byte // encoded, not yet read
	ended  bool   // nothing comes after the frames
}

// watch serves the changes of a kind. The caller holds the lock.
func (s *Server) watch(c *call, t *table) (answer, error) {
	selects, err := c.selector()
	if err != nil {
		return answer{}, err
	}
	w := &watcher{
		server: s, call: c, table: t, selects: selects, since: s.revision, ctx: c.ctx, closed: make(chan struct{}),
		bookmarks: c.parameter("allowWatchBookmarks") == "true",
	}
	if text := c.parameter("timeoutSeconds"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 0 {
			return answer{}, apierrors.NewBadRequest("timeoutSeconds " + text + " is no number")
		}
		if seconds > 0 {
			timeout := time.Duration(seconds) * time.Second
			w.until = time.Now().Add(timeout)
			s.after(timeout, s.wake)
		}
	}
	initial := c.parameter("sendInitialEvents")
	if match := c.parameter("resourceVersionMatch"); initial != "" && match != string(metav1.ResourceVersionMatchNotOlderThan) {
		return answer{}, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", field.ErrorList{
			field.Forbidden(field.NewPath("resourceVersionMatch"), "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")})
	}
	switch version := c.parameter("resourceVersion"); {
	case initial == "true" || initial == "" && (version == "" || version == "0"):
		for _, e := range t.within(c.Namespace) {
			if e = s.recount(t, e); selects(e.object) {
				w.event(watch.Added, e)
			}
		}
		w.since = s.revision
		if initial == "true" && w.bookmarks {
			w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
	case version == "" || version == "0":
	default:
		if w.since, err = strconv.ParseUint(version, 10, 64); err != nil {
			return answer{}, apierrors.NewBadRequest("resourceVersion " + version + " is no number")
		}
	}
	return answer{code: http.StatusOK, contentType: contentJSON, stream: w}, nil
}

// wake has every watch look again. The caller holds the lock.
func (s *Server) wake() {
	if s.written != nil {
		close(s.written)
		s.written = nil
	}
}

// Read implements io.Reader.
func (w *watcher) Read(p []byte) (int, error) {
	for len(w.frames) == 0 {
		if w.ended {
			return 0, io.EOF
		}
		written := w.collect()
		if len(w.frames) > 0 || w.ended {
			continue
		}
		select {
		case <-written:
		case <-w.closed:
			return 0, io.EOF
		case <-w.ctx.Done():
			return 0, w.ctx.Err()
		}
	}
	n := copy(p, w.frames)
	w.frames = w.frames[n:]
	return n, nil
}

// Close implements io.Closer.
func (w *watcher) Close() error {
	w.close.Do(func() { close(w.closed) })
	return nil
}

// collect encodes what was written since, and gives what closes at the next
// write.
func (w *watcher) collect() <-chan struct{} {
	s, t := w.server, w.table
	s.begin()
	defer s.end()
	if t.kind.resource == "poddisruptionbudgets" {
		for _, e := range slices.Clone(t.within(w.call.Namespace)) {
			s.recount(t, e)
		}
	}
	if w.since < t.expired {
		w.fail(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.since, t.expired)))
		return nil
	}
	from, _ := slices.BinarySearchFunc(t.history, w.since+1, func(c change, revision uint64) int {
		return int(c.revision) - int(revision) // #nosec G115 -- counted from 1
	})
	for _, c := range t.history[from:] {
		w.see(c)
	}
	w.since = max(w.since, s.revision)
	if !w.until.IsZero() && !time.Now().Before(w.until) {
		if w.bookmarks {
			w.bookmark(nil)
		}
		w.ended = true
	}
	if s.written == nil {
		s.written = make(chan struct{})
	}
	return s.written
}

// see adds a write's event: an object that begins to match is added, and one that
// ceases to is deleted.
func (w *watcher) see(c change) {
	matches := func(e *entry) bool {
		return e != nil && (w.call.Namespace == "" || e.object.GetNamespace() == w.call.Namespace || !w.table.kind.namespaced) && w.selects(e.object)
	}
	switch before, after := matches(c.old), matches(c.now); {
	case !before && after:
		w.event(watch.Added, c.now)
	case before && after:
		w.event(watch.Modified, c.now)
	case before:
		// The last state, by the revision of the write that ended it.
		last, ok := c.old.object.DeepCopyObject().(object)
		if !ok {
			return // every kind's copy is of its type
		}
		last.SetResourceVersion(strconv.FormatUint(c.revision, 10))
		w.event(watch.Deleted, &entry{key: c.old.key, object: last})
	}
}

func (w *watcher) event(kind watch.EventType, e *entry) {
	a, err := w.call.one(http.StatusOK, e)
	if err != nil {
		w.fail(err)
		return
	}
	w.frame(kind, a.body)
}

func (w *watcher) bookmark(annotations map[string]string) {
	k := w.table.kind
	data, err := json.Marshal(metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: k.name, APIVersion: k.groupVersion()},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(w.server.revision, 10), Annotations: annotations},
	})
	if err != nil {
		w.fail(err)
		return
	}
	w.frame(watch.Bookmark, data)
}

// fail ends the watch by an error, which comes as an event once it has begun.
func (w *watcher) fail(err error) {
	w.frame(watch.Error, refusal(contentJSON, err).body)
	w.ended = true
}

func (w *watcher) frame(kind watch.EventType, object []byte) {
	w.frames = fmt.Appendf(w.frames, `{"type":%q,"object":%s}`+"\n", kind, object)
}

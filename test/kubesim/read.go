package kubesim

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (s *Server) get(c *call, t *table) (answer, error) {
	e := t.entries[c.key()]
	if e == nil {
		return answer{}, apierrors.NewNotFound(t.kind.groupResource(), c.Name)
	}
	return c.one(http.StatusOK, s.recount(t, e))
}

// snapshotLasts is how long a list may be gone through: etcd forgets the past
// every five minutes.
const snapshotLasts = 5 * time.Minute

// A snapshotKey says which list a snapshot is of.
type snapshotKey struct {
	resource, namespace string
	revision            uint64
}

// A snapshot is what a list that was given in part was made of.
type snapshot struct {
	entries []*entry
	until   time.Time
}

// A token says where a list goes on. Revision 0 goes on in what is there by
// then.
type token struct {
	Revision uint64 `json:"rv"`
	Start    string `json:"start"` // the last key that was given
}

func (k token) String() string {
	data, err := json.Marshal(k)
	if err != nil {
		return "" // of a number and a string
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func (s *Server) list(c *call, t *table) (answer, error) {
	selects, err := c.selector()
	if err != nil {
		return answer{}, err
	}
	limit := 0
	if text := c.parameter("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 {
			return answer{}, apierrors.NewBadRequest("limit " + text + " is no number")
		}
	}
	all := t.within(c.Namespace)
	revision := s.revision
	if text := c.parameter("continue"); text != "" {
		if all, revision, err = s.goOn(t, c.Namespace, text); err != nil {
			return answer{}, err
		}
	}
	var items []*entry
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)}
	for i, e := range all {
		e = s.recount(t, e)
		if !selects(e.object) {
			continue
		}
		if limit > 0 && len(items) == limit {
			s.keep(snapshotKey{t.kind.resource, c.Namespace, revision}, all)
			meta.Continue = token{revision, items[limit-1].key}.String()
			if c.parameter("labelSelector") == "" && c.parameter("fieldSelector") == "" {
				left := int64(len(all) - i)
				meta.RemainingItemCount = &left
			}
			break
		}
		items = append(items, e)
	}
	return c.many(meta, items)
}

// keep keeps what a list shows, for who asks for the rest. Entries do not
// change, but the table's slice does.
func (s *Server) keep(of snapshotKey, entries []*entry) {
	for key, old := range s.snapshots {
		if !time.Now().Before(old.until) {
			delete(s.snapshots, key)
		}
	}
	if s.snapshots == nil {
		s.snapshots = map[snapshotKey]snapshot{}
	}
	s.snapshots[of] = snapshot{slices.Clone(entries), time.Now().Add(snapshotLasts)}
}

// goOn returns the rest of a list that was given in part.
func (s *Server) goOn(t *table, namespace, text string) ([]*entry, uint64, error) {
	var from token
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &from)
	}
	if err != nil {
		return nil, 0, apierrors.NewBadRequest("continue key is not valid: " + err.Error())
	}
	all, revision := t.within(namespace), s.revision
	if from.Revision != 0 {
		kept, ok := s.snapshots[snapshotKey{t.kind.resource, namespace, from.Revision}]
		if !ok || !time.Now().Before(kept.until) {
			expired := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results.")
			expired.ErrStatus.Continue = token{Start: from.Start}.String()
			return nil, 0, expired
		}
		all, revision = kept.entries, from.Revision
	}
	begin, _ := slices.BinarySearchFunc(all, from.Start+"\x00", func(e *entry, key string) int { return strings.Compare(e.key, key) })
	return all[begin:], revision, nil
}

package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/lru"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
)

const (
	// absentFor is how long a Node has to be away before its machine is admitted again
	// without a word on its kubelet.
	absentFor = time.Minute
	// absentAgain is when a machine whose Node is away is to ask again: sooner than
	// absentFor, since each replica counts for itself.
	absentAgain = 20 * time.Second
	// absentGap is how long nobody may ask for an absence to count on: a Node that was
	// there meanwhile, and nobody saw, was there for longer.
	absentGap = 2 * time.Minute
	maxAbsent = 4096 // names that are known
)

// absences are since when the Nodes of names are away for which their machines ask. A
// Node that somebody deletes takes its Lease along, and a kubelet that lives can renew
// none without a Node: so nothing is heard of it, and its pods are there until it finds
// out. The watch would not do, since it begins anew with each replica that leads.
type absences struct {
	mu sync.Mutex
	by *lru.Cache // of *absence, by name, those asked for last
}

type absence struct{ since, asked time.Time }

func newAbsences() *absences { return &absences{by: lru.New(maxAbsent)} }

// left is how long a name's Node has to be away still, from the first time that is asked.
func (s *absences) left(name string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.by.Get(name); ok {
		if a, ok := known.(*absence); ok && now.Sub(a.asked) < absentGap {
			a.asked = now
			return absentFor - now.Sub(a.since)
		}
	}
	s.by.Add(name, &absence{now, now})
	return absentFor
}

// begun says whether a name's Node is known to be away.
func (s *absences) begun(name string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.by.Get(name)
	a, is := known.(*absence)
	return ok && is && now.Sub(a.asked) < absentGap
}

// end is of a Node that is there, or of a machine that was admitted.
func (s *absences) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by.Remove(name)
}

// livedOn says whether a kubelet may have lived on a machine under its admission: a
// certificate was signed for it, or, since k3s and RKE2 sign by themselves, its token is
// over.
func (a admitted) livedOn(m fleet.Member, now time.Time, ttl time.Duration) bool {
	return a.VMID == m.VMID && a.Instance.Equal(m.Instance) && (a.Certificates != noCertificate || now.Sub(a.At) >= ttl)
}

// stillAway sees that a Node that is known to be away was so for a minute, and that its
// Lease, which may outlive it for a while, was not renewed in the last one.
func (c *Cluster) stillAway(ctx context.Context, name string, member fleet.Member) error {
	if !c.absences.begun(name, c.now()) {
		return nil
	}
	before, known, err := c.admission(ctx, name)
	if err != nil {
		return err
	}
	if !known || !before.livedOn(member, c.now(), c.ttl) {
		c.absences.end(name) // it left, or another replica admitted it
		return nil
	}
	heard, err := c.Heard(ctx, name)
	if err != nil {
		return err
	}
	now := c.now()
	if left := max(c.absences.left(name, now), absentFor-now.Sub(heard)); left > 0 {
		return absent(name, left)
	}
	return nil
}

// absent is the error of a machine that was admitted, and whose Node somebody deleted.
func absent(name string, left time.Duration) error {
	return &fleet.Error{Op: "admit", Resource: "node " + name, Kind: fleet.KindConflict, RetryAfter: min(left, absentAgain),
		Err: fmt.Errorf("%w: its Node was deleted, and nothing says since when its kubelet stands still", admission.ErrHeard)}
}

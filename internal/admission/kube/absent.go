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
	// absentFor is how long a Node must be absent before its machine may join again.
	absentFor = time.Minute
	// absentRetry is the Retry-After of such a machine: shorter than absentFor, because
	// each replica measures the absence itself.
	absentRetry = 20 * time.Second
	// absentGap restarts the measurement if no request came for this long: the Node may
	// have existed in between.
	absentGap = 2 * time.Minute
	maxAbsent = 4096 // names, least recently requested evicted
)

// absences records since when Nodes are missing for which machines request to join. When
// a Node is deleted its Lease is deleted too, and a running kubelet cannot renew a Lease
// without a Node. The kubelet is then silent while its pods still run. A watch of
// deletions would not suffice: it restarts with every leader.
type absences struct {
	mu sync.Mutex
	by *lru.Cache // of *absence, by Node name
}

type absence struct{ since, requested time.Time }

func newAbsences() *absences { return &absences{by: lru.New(maxAbsent)} }

// left returns how much longer a Node must be absent, counted from the first request.
func (s *absences) left(name string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.current(name, now); ok {
		a.requested = now
		return absentFor - now.Sub(a.since)
	}
	s.by.Add(name, &absence{now, now})
	return absentFor
}

// known reports whether an absence of the Node is being measured.
func (s *absences) known(name string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.current(name, now)
	return ok
}

// current returns the absence that counts; s.mu is locked.
func (s *absences) current(name string, now time.Time) (*absence, bool) {
	found, _ := s.by.Get(name)
	a, ok := found.(*absence)
	return a, ok && now.Sub(a.requested) < absentGap
}

// end forgets an absence: the Node exists, or the machine was admitted.
func (s *absences) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by.Remove(name)
}

// mayHaveRun reports whether a kubelet may have run on the machine under this admission: a
// certificate was signed, or the token has expired (k3s and RKE2 sign certificates
// themselves).
func (a admitted) mayHaveRun(m fleet.Member, now time.Time, ttl time.Duration) bool {
	return a.VMID == m.VMID && a.Instance.Equal(m.Instance) && (a.Certificates != noCertificate || now.Sub(a.At) >= ttl)
}

// checkAbsence refuses a machine whose Node is known to be absent for less than a minute,
// or whose Lease outlived the Node and was renewed in the last minute.
func (c *Cluster) checkAbsence(ctx context.Context, name string, member fleet.Member) error {
	if !c.absences.known(name, c.now()) {
		return nil
	}
	before, known, err := c.admission(ctx, name)
	if err != nil {
		return err
	}
	if !known || !before.mayHaveRun(member, c.now(), c.ttl) {
		c.absences.end(name) // it left, or another replica admitted it
		return nil
	}
	heard, err := c.Heard(ctx, name)
	if err != nil {
		return err
	}
	now := c.now()
	if left := max(c.absences.left(name, now), absentFor-now.Sub(heard)); left > 0 {
		return absentError(name, left)
	}
	return nil
}

func absentError(name string, left time.Duration) error {
	return &fleet.Error{Op: "admit", Resource: "node " + name, Kind: fleet.KindConflict, RetryAfter: min(left, absentRetry),
		Err: fmt.Errorf("%w: the Node was deleted less than %s ago", admission.ErrHeard, absentFor)}
}

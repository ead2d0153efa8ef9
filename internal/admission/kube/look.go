package kube

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
)

// The rate of reads in Azure for one machine that requests certificates. A kubelet requests
// two when it starts, and then by the month; but a certificate's holder may ask as often as
// the API server permits. A read queues among the few per minute of that instance, and all
// requests would wait behind it.
const (
	lookEvery = 15 * time.Second // refills one
	lookBurst = 6
	lookFor   = 2 * lookEvery // an answer may do
	maxLooked = 4096          // machines that are known
)

// looks are the approver's reads in Azure. Beyond a machine's quota the last answer counts,
// if it was requested no longer than lookFor ago.
type looks struct {
	directory admission.Directory
	now       func() time.Time

	mu sync.Mutex
	by map[machine]*looked
}

// A machine is an instance and its vmId: knowledge of one does not apply to the next in its
// place.
type machine struct {
	instance fleet.ResourceID
	vmID     string
}

type looked struct {
	limiter *rate.Limiter
	at      time.Time     // of the last read that was answered
	member  *fleet.Member // nil where Azure had none
}

// at returns what Azure has under the instance of a machine; nil where it has none.
func (l *looks) at(ctx context.Context, m machine) (*fleet.Member, error) {
	seen, began := l.of(m), l.now()
	l.mu.Lock()
	again, at, last := seen.limiter.AllowN(began, 1), seen.at, seen.member
	l.mu.Unlock()
	switch {
	case again:
	case began.Sub(at) < lookFor:
		return last, nil
	default:
		return nil, &fleet.Error{Op: "look up instance", Resource: string(m.instance), Kind: fleet.KindThrottled, RetryAfter: lookEvery,
			Err: errors.New("it was asked for too often, and there is no answer yet")}
	}
	var found *fleet.Member
	member, err := l.directory.Member(ctx, m.instance)
	switch {
	case err == nil:
		found = &member
	case !fleet.Is(err, fleet.KindNotFound):
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if began.After(seen.at) {
		seen.at, seen.member = began, found
	}
	return found, nil
}

func (l *looks) of(m machine) *looked {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seen := l.by[m]; seen != nil {
		return seen
	}
	if now := l.now(); len(l.by) >= maxLooked { // one that is as a new one is lost nothing with
		maps.DeleteFunc(l.by, func(_ machine, o *looked) bool { return o.limiter.TokensAt(now) >= lookBurst })
	}
	seen := &looked{limiter: rate.NewLimiter(rate.Every(lookEvery), lookBurst)}
	l.by[m] = seen
	return seen
}

package push

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig"
)

// userDataOf reads an instance with its userData; a missing instance has none. foreign
// describes what a push must not replace.
func (p *push) userDataOf(ctx context.Context, id fleet.ResourceID) (now instance, foreign string, err error) {
	if err = fleet.IgnoreNotFound(p.ARM.Get(ctx, id, computeVersion, &now, "$expand", "userData")); err == nil && !p.o.ReplaceUserData {
		_, _, foreign = parse(now.Properties.UserData, p.pool)
	}
	return now, foreign, err
}

// mayReplace says why the model's userData must stay.
func (p *push) mayReplace(now *observation) error {
	if now.foreign == "" || p.o.ReplaceUserData {
		return p.superseded(now.set.Properties.Profile.UserData)
	}
	problem := foreignProblem(string(p.pool), now.foreign)
	return &fleet.Error{Op: "set the model's userData", Resource: string(p.pool), Kind: fleet.KindBlocked, Err: errors.New(problem.What), Remedy: problem.WayOut}
}

// superseded fails where userData is the document of a newer push: since the history was
// read, the write may have waited for other operations.
func (p *push) superseded(userData string) error {
	d, signed, _ := parse(userData, p.pool)
	if d == nil || d.Generation <= p.generation || p.o.ResetGeneration && d.Generation > nodeconfig.MaxGeneration {
		return nil
	}
	if _, err := signed.Verify(p.keys); err == nil {
		return &fleet.Error{Op: fmt.Sprintf("push generation %d", p.generation), Resource: string(p.pool), Kind: fleet.KindHeld,
			Err: fmt.Errorf("another push wrote generation %d", d.Generation), Remedy: "wait until it has ended (ortet config status), then push again"}
	}
	return nil
}

// maxMissing is how often an instance has to be missing until it counts as deleted:
// Resource Manager may lack one for seconds that was made just now.
const (
	maxMissing   = 3
	missingPause = 5 * time.Second
)

// setUserData gives an instance the userData, unless that became another program's since it
// was inspected. gone says that Azure has the instance no longer.
func (p *push) setUserData(ctx context.Context, m member) (gone bool, err error) {
	for missing := 0; ; {
		now, foreign, err := p.userDataOf(ctx, m.id)
		if err == nil && foreign != "" {
			problem := foreignProblem(m.Instance, foreign)
			err = &fleet.Error{Op: "set userData of instance " + m.Instance, Kind: fleet.KindBlocked, Err: errors.New(problem.What), Remedy: problem.WayOut}
		}
		if err == nil {
			err = p.superseded(now.Properties.UserData)
		}
		if err != nil || now.Properties.UserData == p.userData { // an instance of the new model has it
			return false, err
		}
		if now.ID != "" { // else a write would have no ETag
			err = p.writer().Do(ctx, fleet.SetUserData{Instance: m.id, UserData: p.userData, Etag: now.Etag})
		}
		switch {
		case fleet.Is(err, fleet.KindStale): // it had no effect
		case now.ID != "" && !fleet.Is(err, fleet.KindNotFound):
			p.changed.Store(true)
			return false, err
		default:
			if missing++; missing == maxMissing {
				return true, nil
			}
		}
		if err := azure.Sleep(ctx, missingPause); err != nil {
			return false, err
		}
	}
}

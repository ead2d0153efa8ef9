package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

const groupVersion = "2021-04-01"

// Tags of a run's groups.
const (
	tagRun   = "ortet.io_live-run" // the run's name
	tagOwner = "ortet.io_live-owner"
	tagEnd   = "ortet.io_live-end" // RFC 3339: the run does nothing after it
)

type group struct {
	Name     string            `json:"name"`
	Location string            `json:"location"`
	Tags     map[string]string `json:"tags"`
}

// claimGroup makes the run's group. A group that exists is refused: nothing in it is touched.
func (s *session) claimGroup(ctx context.Context, end time.Time) error {
	id := s.group(s.name)
	var have group
	switch err := s.resources.Get(ctx, id, groupVersion, &have); {
	case err == nil && have.Tags[tagRun] == "":
		return fmt.Errorf("resource group %s exists and is not of make live; nothing in it was touched; choose another LIVE_NAME", s.name)
	case err == nil:
		return fmt.Errorf("resource group %s is of a run of %s until %s; choose another LIVE_NAME, or LIVE_NAME=%s make live-clean",
			s.name, have.Tags[tagOwner], have.Tags[tagEnd], s.name)
	case !fleet.Is(err, fleet.KindNotFound):
		return err
	}
	body := group{Location: s.region, Tags: map[string]string{tagRun: s.name, tagOwner: s.owner, tagEnd: end.UTC().Format(time.RFC3339)}}
	if err := azure.SendAndWait(ctx, s.resources, "create resource group", http.MethodPut, id, groupVersion, body); err != nil {
		// The answer may be lost and the group be there.
		return errors.Join(err, s.removeGroup(context.WithoutCancel(ctx), s.name))
	}
	return nil
}

// removeGroup deletes a group that has a run's tag, and all in it. One that is gone is no error.
func (s *session) removeGroup(ctx context.Context, name string) error {
	ctx, end := context.WithTimeout(ctx, cleanUpLimit)
	defer end()
	id := s.group(name)
	err := func() error {
		var have group
		if err := s.resources.Get(ctx, id, groupVersion, &have); err != nil {
			return err
		}
		if have.Tags[tagRun] != name {
			return fmt.Errorf("its tag %s is %q, expected %q", tagRun, have.Tags[tagRun], name)
		}
		s.say("deleting resource group %s", name)
		return azure.SendAndWait(ctx, s.resources, "delete resource group", http.MethodDelete, id, groupVersion, nil)
	}()
	if err = fleet.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("cannot delete resource group %s: %w; it is billed until this deletes it: LIVE_NAME=%s make live-clean, or: "+
			"az group delete --name %s", name, err, name, name)
	}
	return nil
}

// Clean deletes the group of LIVE_NAME or, without it and if that is confirmed, the owner's
// groups that are past their end. Who can write tags can make a group look like one of these.
func (p Program) Clean(ctx context.Context) int {
	fail := func(err error) int {
		_, _ = fmt.Fprintln(p.Out, "FAILED:", err)
		return ExitFailed
	}
	set, err := p.settings()
	if err != nil {
		return fail(err)
	}
	s, err := p.open(ctx, set)
	if err != nil {
		return fail(err)
	}
	named, found := p.Getenv("LIVE_NAME"), 0
	var wrong []error
	var groups []group
	err = s.resources.List(ctx, fleet.ResourceID("/subscriptions/"+s.who.Subscription+"/resourcegroups"), groupVersion,
		func(item json.RawMessage) error {
			var g group
			err := json.Unmarshal(item, &g)
			if groups = append(groups, g); err == nil && g.Name == named && g.Tags[tagRun] == "" {
				err = fmt.Errorf("resource group %s is not of make live; nothing in it was touched", named)
			}
			return err
		})
	if err != nil {
		return fail(err)
	}
	for _, g := range groups {
		if g.Tags[tagRun] == "" || named != "" && g.Name != named {
			continue
		}
		found++
		end, err := time.Parse(time.RFC3339, g.Tags[tagEnd])
		if g.Name != named && (err != nil || s.now().Before(end) || g.Tags[tagOwner] != s.owner) {
			s.say("kept: resource group %s of %s, whose run may go on until %s; LIVE_NAME=%s make live-clean deletes it",
				g.Name, g.Tags[tagOwner], g.Tags[tagEnd], g.Name)
			continue
		}
		if s.say("delete resource group %s in %s with all that is in it", g.Name, g.Location); !s.yes && g.Name != named {
			if s.say("type yes"); !confirmed(ctx, p.In) {
				continue
			}
		}
		wrong = append(wrong, s.removeGroup(ctx, g.Name))
	}
	if err := errors.Join(wrong...); err != nil {
		return fail(err)
	}
	s.say("%d resource groups of make live found", found)
	return ExitDone
}

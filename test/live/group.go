package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

const (
	groupVersion = "2021-04-01"
	grantVersion = "2022-04-01"
	grantType    = "/providers/Microsoft.Authorization/roleAssignments"
)

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

// groups are the run's, in the order in which they can be deleted, each with the tags that
// it has besides the run's.
func (s settings) groups() (names []string, tags map[string]map[string]string) {
	if !s.onCluster() {
		return []string{s.name}, nil
	}
	tags = map[string]map[string]string{}
	for _, role := range []string{lifecycle.RoleCompute, lifecycle.RoleStorage} {
		names = append(names, s.name+"-"+role)
		tags[s.name+"-"+role] = map[string]string{recipe.TagCluster: s.cluster, recipe.TagRole: role}
	}
	return names, tags
}

// claimGroups makes the run's groups. A group that exists is refused: nothing in it is touched.
func (s *session) claimGroups(ctx context.Context, end time.Time) error {
	names, tags := s.groups()
	for _, name := range names {
		var have group
		switch err := s.resources.Get(ctx, s.group(name), groupVersion, &have); {
		case err == nil && have.Tags[tagRun] == "":
			return fmt.Errorf("resource group %s exists and is not of make live; nothing in it was touched; choose another LIVE_NAME", name)
		case err == nil:
			return fmt.Errorf("resource group %s is of a run of %s until %s; choose another LIVE_NAME, or LIVE_NAME=%s make live-clean",
				name, have.Tags[tagOwner], have.Tags[tagEnd], have.Tags[tagRun])
		case !fleet.Is(err, fleet.KindNotFound):
			return err
		}
	}
	for _, name := range names {
		body := group{Location: s.region, Tags: map[string]string{tagRun: s.name, tagOwner: s.owner,
			tagEnd: end.UTC().Format(time.RFC3339)}}
		maps.Copy(body.Tags, tags[name])
		if err := azure.SendAndWait(ctx, s.resources, "create resource group", http.MethodPut, s.group(name), groupVersion,
			body); err != nil {
			// The answer may be lost and the group be there.
			return errors.Join(err, s.removeGroups(context.WithoutCancel(ctx), s.name, names...))
		}
	}
	return nil
}

// removeGroups is removeGroup of each.
func (s *session) removeGroups(ctx context.Context, run string, names ...string) error {
	var wrong []error
	for _, name := range names {
		wrong = append(wrong, s.removeGroup(ctx, run, name))
	}
	return errors.Join(wrong...)
}

// removeGroup deletes a group that has the run's tag, and all in it. One that is gone is no error.
func (s *session) removeGroup(ctx context.Context, run, name string) error {
	ctx, end := context.WithTimeout(ctx, cleanUpLimit)
	defer end()
	id := s.group(name)
	err := func() error {
		var have group
		if err := s.resources.Get(ctx, id, groupVersion, &have); err != nil {
			return err
		}
		if have.Tags[tagRun] != run {
			return fmt.Errorf("its tag %s is %q, expected %q", tagRun, have.Tags[tagRun], run)
		}
		s.say("deleting resource group %s", name)
		return azure.SendAndWait(ctx, s.resources, "delete resource group", http.MethodDelete, id, groupVersion, nil)
	}()
	if err = fleet.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("cannot delete resource group %s: %w; it is billed until this deletes it: LIVE_NAME=%s make live-clean, or: "+
			"az group delete --name %s", name, err, run, name)
	}
	return nil
}

// removeGrants deletes the role assignments in a cluster's group, which may outlive it.
func (s *session) removeGrants(ctx context.Context, g group) error {
	if g.Tags[recipe.TagCluster] == "" {
		return nil
	}
	var ids []fleet.ResourceID
	in := strings.ToLower(string(s.group(g.Name))) + "/"
	err := s.resources.List(ctx, s.group(g.Name)+grantType, grantVersion, func(item json.RawMessage) error {
		var grant struct {
			ID fleet.ResourceID `json:"id"`
		}
		err := json.Unmarshal(item, &grant)
		if strings.HasPrefix(strings.ToLower(string(grant.ID)), in) { // others are the subscription's
			ids = append(ids, grant.ID)
		}
		return err
	})
	wrong := []error{fleet.IgnoreNotFound(err)}
	for _, id := range ids {
		s.say("deleting role assignment %s", id)
		wrong = append(wrong, fleet.IgnoreNotFound(azure.SendAndWait(ctx, s.resources, "delete role assignment", http.MethodDelete, id,
			grantVersion, nil)))
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("cannot delete role assignments in resource group %s: %w; az role assignment list --all", g.Name, err)
	}
	return nil
}

// Clean deletes the groups of the run LIVE_NAME or, without it and if that is confirmed, the owner's
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
	// A run's -compute uses the disk in its -storage.
	slices.SortFunc(groups, func(a, b group) int { return strings.Compare(a.Name, b.Name) })
	for _, g := range groups {
		run := g.Tags[tagRun]
		if run == "" || named != "" && run != named {
			continue
		}
		found++
		end, err := time.Parse(time.RFC3339, g.Tags[tagEnd])
		if run != named && (err != nil || s.now().Before(end) || g.Tags[tagOwner] != s.owner) {
			s.say("kept: resource group %s of %s, whose run may go on until %s; LIVE_NAME=%s make live-clean deletes it",
				g.Name, g.Tags[tagOwner], g.Tags[tagEnd], run)
			continue
		}
		if s.say("delete resource group %s in %s with all that is in it", g.Name, g.Location); !s.yes && run != named {
			if s.say("type yes"); !confirmed(ctx, p.In) {
				continue
			}
		}
		wrong = append(wrong, s.removeGrants(ctx, g), s.removeGroup(ctx, run, g.Name))
	}
	if err := errors.Join(wrong...); err != nil {
		return fail(err)
	}
	s.say("%d resource groups of make live found", found)
	return ExitDone
}

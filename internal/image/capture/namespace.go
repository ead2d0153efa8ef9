package capture

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture/report"
	"github.com/ortet/ortet/internal/image/capture/version"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/workflow"
)

const (
	// CodeOtherNamespace is the problem of a pool whose lock and record are in another namespace.
	CodeOtherNamespace = "OtherNamespace"
	// CodePoolCredentials is the problem of a disk with credentials that all nodes of the pool share.
	CodePoolCredentials = report.CodePoolCredentials
)

// claim records on the pool's image definitions that its lock and record are in this namespace,
// and refuses a pool of another one, since a Lease keeps only its own namespace's processes off.
// Where the tag cannot be written that is a note: a rollback may have no right to. A pool without
// a definition is claimed by the row that creates it.
func (c Config) claim(ctx context.Context, pool fleet.ResourceID, note func(string, ...any)) error {
	gallery := plan.DefinitionOf(pool).Parent()
	all, err := c.Cloud.Definitions(ctx, gallery)
	if err != nil && ctx.Err() == nil {
		note(unclaimed, fleet.TagNamespace, gallery, err)
		return nil
	}
	own := plan.DefinitionsOf(pool, all)
	if err := c.elsewhere(own...); err != nil {
		return err
	}
	for _, d := range own {
		if err := c.claimOne(ctx, d, note); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

const unclaimed = "commands in other namespaces are not kept off this pool, since the tag %s of %s could not be read or written: %v"

func (c Config) claimOne(ctx context.Context, d fleet.Definition, note func(string, ...any)) (err error) {
	id := d.ID
	if d.Tags[fleet.TagNamespace] == "" && c.Namespace != "" {
		w := azure.Writer{Cloud: c.Cloud, Now: c.Now, Within: time.Minute}
		err = w.Do(ctx, fleet.TagDefinition{ID: id, Tags: map[string]string{fleet.TagNamespace: c.Namespace}})
		for reads := 0; err == nil && d.Tags[fleet.TagNamespace] == ""; reads++ { // Azure may not show it for a minute
			if err = azure.Sleep(ctx, version.ClaimSettles); err != nil {
				break
			}
			if d, err = c.Cloud.Definition(ctx, id); reads < 4 {
				err = nil
			} else if err == nil && d.Tags[fleet.TagNamespace] == "" {
				err = errors.New("it is not there after it was written")
			}
		}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case fleet.IgnoreNotFound(err) != nil:
		note(unclaimed, fleet.TagNamespace, id, err)
		return nil //nolint:nilerr // it is noted
	}
	return c.elsewhere(d)
}

// elsewhere refuses a pool of whose definitions one names another namespace.
func (c Config) elsewhere(definitions ...fleet.Definition) error {
	i := slices.IndexFunc(definitions, func(d fleet.Definition) bool {
		other := d.Tags[fleet.TagNamespace]
		return other != "" && other != c.Namespace && c.Namespace != ""
	})
	if i < 0 {
		return nil
	}
	d := definitions[i]
	other := d.Tags[fleet.TagNamespace]
	x := fleet.Problem{
		Code: CodeOtherNamespace, On: string(d.ID),
		What: fmt.Sprintf("the lock and the record of its pool are in namespace %s, not in %s", other, c.Namespace),
		WayOut: fmt.Sprintf("give --namespace %s; or, once ortet status --namespace %s shows nothing open, move the pool: az tag update --operation delete --resource-id %s --tags %s=%s",
			other, other, d.ID, fleet.TagNamespace, other),
	}
	if !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(other) { // in a command for a shell it could be another one
		x.What = fmt.Sprintf("its tag %s is %q, which is no namespace", fleet.TagNamespace, other)
		x.WayOut = fmt.Sprintf("once no namespace has an open capture of the pool: az tag update --operation merge --resource-id %s --tags %s=%s", d.ID, fleet.TagNamespace, c.Namespace)
	}
	return &workflow.Refused{Problems: []fleet.Problem{x}}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ortet/ortet/internal/boots/survey"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/auto"
	"github.com/ortet/ortet/internal/image/donors"
	"github.com/ortet/ortet/internal/workflow"
)

// poolSelection is the pools of a command, and the rules for their donors.
type poolSelection struct {
	pools  []string // names or ARM ids
	all    bool
	groups []string // in which pools are found, besides the credentials'; nil is any: see inGroups
	policy donors.Policy
	shows  bool // nothing is changed
}

// policyFlags are the rules' flags, the same for each command.
func (s *poolSelection) policyFlags() *pflag.FlagSet {
	p, f := &s.policy, pflag.NewFlagSet("policy", pflag.ContinueOnError)
	p.MinReady = time.Hour
	f.StringVar(&p.PatchAnnotation, "patch-annotation", "", "`NAME` of nodes' annotation with their last patch")
	f.StringVar(&p.RebootAnnotation, "reboot-annotation", "", "`NAME` of nodes' annotation for a pending reboot")
	f.Var(durationFlag{&p.MinReady, true}, "min-ready", "minimum `DURATION` since a donor became Ready: 90 (seconds), 5m, 1h30m, 2d")
	f.IntVar(&p.MinCandidates, "min-candidates", 1, "minimum `NUMBER` of nodes that qualify")
	f.IntVar(&p.MaxImageAge, "max-image-age", 0, "`DAYS` after which a new image is due without patches; 0 is no limit")
	f.StringArrayVar(&p.IgnoreNodes, "ignore-node", nil, "`NAME` of a node that is never a donor; repeatable")
	f.StringArrayVar(&p.IgnoreAnnotations, "ignore-annotation", nil, "`NAME` of an annotation of nodes that are never donors; repeatable")
	f.StringArrayVar(&p.Off, "skip-rule", nil, "`RULE` to switch off (ortet donors --help); repeatable")
	return f
}

// open checks the selection, connects, and finds the pools, each once. config has what
// is wanted of an Auto beside the policy.
func (s *poolSelection) open(ctx context.Context, o *options, w work, show poolShow, config auto.Config) (*auto.Auto, []fleet.ResourceID, error) {
	for _, arg := range s.pools {
		if err := checkPool(arg); err != nil {
			return nil, nil, err
		}
	}
	if s.policy.MinCandidates == 0 {
		return nil, nil, usagef("--min-candidates 0: want 1 or more")
	}
	s.policy.Self = o.process.Getenv("NODE_NAME")
	if err := s.policy.Check(); err != nil {
		return nil, nil, usageError{err}
	}
	if s.all && len(s.pools) > 0 {
		return nil, nil, usagef("name pools or give --all, not both")
	}
	connect := o.openPools
	if o.process.pools != nil {
		connect = o.process.pools
	}
	named, err := groups(s.groups)
	if err != nil {
		return nil, nil, err
	}
	w.pools, config.Groups = s.pools, named
	find, err := connect(ctx, w, show, &config)
	if err != nil {
		return nil, nil, err
	}
	config.Policy = s.policy
	a := auto.New(config)
	if s.all {
		pools, err := a.Pools(ctx)
		if err == nil && s.inGroups() {
			pools, err = o.poolsIn(pools, config.Groups)
		}
		return a, pools, err
	}
	var pools []fleet.ResourceID
	for _, arg := range s.pools {
		find.Places, find.Groups = config.Places(), config.Groups
		if find.Named = s.inGroups(); find.Named {
			find.Places = inGroups{find.Places, config.Groups}
		}
		id, err := s.find(find)(ctx, arg)
		var refused *workflow.Refused
		if find.Named && survey.IsPoolNotFound(err) && errors.As(err, &refused) {
			refused.Problems[0].WayOut += "; a name is looked for in the named resource groups alone: " + nameGroups
		}
		if err != nil {
			return nil, nil, err
		}
		if !slices.ContainsFunc(pools, id.Equal) {
			pools = append(pools, id)
		}
	}
	return a, pools, nil
}

// inGroups reports whether pools are found in the named resource groups alone: what only reads has them
// besides those of Nodes.
func (s *poolSelection) inGroups() bool { return s.groups != nil && !s.shows }

func (s *poolSelection) find(f survey.Finder) func(context.Context, string) (fleet.ResourceID, error) {
	if s.shows {
		return f.ToRead
	}
	return f.ToChange
}

const nameGroups = "name those to work in by --resource-group, or one by azure.json or AZURE_RESOURCE_GROUP"

// inGroups finds pools of named resource groups alone: a Node may report that it is a machine of another
// team's.
type inGroups struct {
	auto.Places
	groups []fleet.ResourceID
}

// Of implements auto.Places.
func (p inGroups) Of(ctx context.Context, n fleet.Node) (fleet.Place, error) {
	place, err := p.Places.Of(ctx, n)
	if err == nil && !slices.ContainsFunc(p.groups, place.Pool.Group().Equal) {
		err = &fleet.Error{Op: "find the pool of", Resource: "node " + n.Name, Kind: fleet.KindInvalid,
			Err: fmt.Errorf("resource group %s is not named", place.Pool.Group())}
	}
	return place, err
}

// poolsIn returns the pools of the groups that a person or the credentials name.
func (o *options) poolsIn(pools, groups []fleet.ResourceID) (in []fleet.ResourceID, err error) {
	var others []string
	for _, pool := range pools {
		if group := pool.Group(); slices.ContainsFunc(groups, group.Equal) {
			in = append(in, pool)
		} else if !slices.Contains(others, string(group)) {
			others = append(others, string(group))
		}
	}
	if len(in) == 0 && len(others) > 0 { // else a wrong name would let each night end well
		what := "no resource group is named"
		if len(groups) > 0 {
			what = fmt.Sprintf("no Node reports a machine of the named resource groups %v", groups)
		}
		return nil, refuse("NoGroup", "--all", what+", and Nodes report machines of "+strings.Join(others, ", "), nameGroups)
	}
	if len(others) > 0 {
		fmt.Fprintf(o.process.Err, "Left out: pools of %s, which Nodes report; %s\n", strings.Join(others, ", "), nameGroups)
	}
	return in, nil
}

// poolShow gives the display of a pool's capture; nil without one.
type poolShow func(pool fleet.ResourceID) *progress

// openPools sets the Service, Nodes and Places of config; tests replace it.
type openPools func(ctx context.Context, w work, show poolShow, config *auto.Config) (survey.Finder, error)

func (o *options) openPools(ctx context.Context, w work, show poolShow, config *auto.Config) (survey.Finder, error) {
	c, err := o.open(ctx, w)
	if err != nil {
		return survey.Finder{}, err
	}
	config.Nodes, config.Places, config.Now = c.config.Cluster, c.places, c.config.Cluster.Now
	if c.group != "" {
		config.Groups = append(config.Groups, c.group)
	}
	config.Service = func(pool fleet.ResourceID) auto.Service { return watching{c.services(show(pool)), w.watch} }
	return o.finder(c.config.Cluster, c.places(), c.boots, c.config.Cloud, nil, c.group), nil
}

// poolNames returns short names: scale sets of one name have their resource group's before it.
func poolNames(pools []fleet.ResourceID) func(fleet.ResourceID) string {
	return func(id fleet.ResourceID) string {
		same := func(other fleet.ResourceID) bool {
			return !other.Equal(id) && strings.EqualFold(other.Name(), id.Name())
		}
		if slices.ContainsFunc(pools, same) {
			return id.Group().Name() + "/" + id.Name()
		}
		return id.Name()
	}
}

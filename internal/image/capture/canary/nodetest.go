package canary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/redact"
)

const (
	shownLines  = 20  // of a test that failed
	maxShown    = 400 // bytes of each
	maxLastLine = 120 // bytes of the last of them beside the reason: a tag has 256 characters
)

func (c *Canary) nodeTest(node string) cluster.NodeTest {
	v := c.Of()
	return cluster.NodeTest{File: v.Request.CanaryTest, Node: node, Pool: v.Pool, Capture: v.Capture}
}

// testProblems are the reasons why the test cannot run on clones, as its pod is refused for the
// donor's node. A test that was asked for is never left out.
func (c *Canary) testProblems(ctx context.Context) (p, unread plan.Problems) {
	v := c.Of()
	if v.Request.CanaryTest == "" {
		return nil, nil
	}
	err := c.Cluster.CheckTest(ctx, c.nodeTest(v.Request.Node))
	const on = "--canary-test"
	if failed, is := errors.AsType[*fleet.Error](err); is && fleet.Is(err, fleet.KindDenied, fleet.KindInvalid, fleet.KindNotFound) {
		p.Refuse(true, "CanaryTest", on, "its pod is refused: "+failed.Err.Error(), cmp.Or(failed.Remedy, "mend the Job, its namespace or its ServiceAccount"))
		return p, nil
	}
	unread.Unreadable(on, err)
	return nil, unread
}

// test has each clone that passed the gates pass the user's test, too.
func (c *Canary) test(ctx context.Context, clones []prove.Clone, of prove.Judgement) (prove.Judgement, error) {
	if c.Of().Request.CanaryTest == "" {
		return of, nil
	}
	findings := slices.Clone(of.Findings)
	for i, f := range findings {
		at := slices.IndexFunc(clones, func(x prove.Clone) bool { return x.Instance.Name == f.Clone })
		if f.Result != prove.Passed || at < 0 {
			continue
		}
		found, err := c.testClone(ctx, f.Clone, clones[at].Node.Name)
		if err != nil {
			return of, err
		}
		findings[i] = found
	}
	return prove.Decide(findings), nil
}

// testClone starts the test of a clone, or reads how far it is. A pod that others deleted, the test
// itself among them, is not started again: the test runs once.
func (c *Canary) testClone(ctx context.Context, clone, node string) (prove.Finding, error) {
	found, started := c.judging.tested[clone]
	if started && found.Result != prove.Waits {
		return found, nil
	}
	found = prove.Finding{Clone: clone, Result: prove.Waits, Why: clone + " passed the gates, and its test runs"}
	if !started {
		err := c.Cluster.StartTest(ctx, c.nodeTest(node))
		if fleet.Is(err, fleet.KindDenied, fleet.KindInvalid, fleet.KindNotFound) { // as by the quota, which may have had room before
			found.Result, found.Why, err = prove.NoResult, clone+" could not run its test: "+redact.Text(err.Error()), nil
		}
		if err == nil {
			c.judging.tested[clone] = found
		}
		return found, err
	}
	s, err := c.Cluster.Test(ctx, c.nodeTest(node))
	if err != nil || s.Exists && !s.Done {
		return found, err
	}
	why := redact.Plain(redact.Text(s.Why), maxLastLine)
	switch {
	case !s.Exists:
		found.Result, found.Why = prove.NoResult, clone+" has no result of its test: the pod was deleted before it ended"
	case !s.Ran:
		found.Result, found.Why = prove.NoResult, clone+" could not run its test: "+cmp.Or(why, "the pod ended without a container that ran")
	case s.ExitCode == 0:
		found = prove.Finding{Clone: clone, Result: prove.Passed}
	default:
		found.Result, found.Gate, found.Lines = prove.Failed, "test", redact.Tail(s.Output, shownLines, maxShown)
		if s.ExitCode > 0 { // it ended
			why = strings.TrimSuffix(fmt.Sprintf("exit code %d, %s", s.ExitCode, why), ", ")
		}
		found.Why = clone + " failed its test (" + why + ")"
		if n := len(found.Lines); n > 0 {
			found.Why += ": " + redact.Plain(found.Lines[n-1], maxLastLine)
		}
	}
	c.judging.tested[clone] = found
	return found, nil
}

// deleteTests deletes what is left of tests once their clones are: a node that is gone ends no
// pod. That it may not is a note, since a pod that ended does no harm.
func (c *Canary) deleteTests(ctx context.Context) error {
	v := c.Of()
	if v.Request.CanaryTest == "" {
		return nil
	}
	err := c.Cluster.DeleteTests(ctx, v.Request.CanaryTest, v.Pool)
	if fleet.Is(err, fleet.KindDenied, fleet.KindInvalid) {
		c.Note("pods of the clones' test are left: %v", err)
		return nil
	}
	return err
}

package join

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// Part is what of a departure is done.
type Part string

// The values of Part.
const (
	WholePart Part = ""      // drain, stop the agent, report that it is stopped
	DrainPart Part = "drain" // drain only; the agent runs on
	LeftPart  Part = "left"  // the agent is stopped already: report that
)

// Departure is how a node leaves.
type Departure struct {
	Cause  string        // as in wire.LeaveRequest
	Within time.Duration // from the call on, for all of it
	Stay   bool          // the machine comes back: drain only, and keep the Node
	Part   Part
}

// The part of the remaining time for stopping the agent and reporting that.
const (
	departShare = 4 // a quarter
	departMost  = 10 * time.Second
	departPause = time.Second
)

// Depart leaves: the server drains this node, its agent is stopped, and that is reported to
// the server. Each step is tried while time is left, also after errors, and the error has
// all that failed. It is idempotent; a node that has left joins again at its next start.
func (c *Client) Depart(ctx context.Context, d Departure) error {
	ctx, cancel := context.WithTimeout(ctx, d.Within)
	defer cancel()
	end := c.options.now().Add(d.Within)
	var problems []error
	if d.Part != LeftPart {
		spare := min(d.Within/departShare, departMost)
		if d.Stay || d.Part == DrainPart {
			spare = 0
		}
		if err := c.drain(ctx, d, end.Add(-spare)); err != nil {
			problems = append(problems, fmt.Errorf("draining: %w", err))
		}
	}
	if d.Stay || d.Part == DrainPart {
		return errors.Join(problems...)
	}
	name := AgentUnit(c.settings.Distribution)
	err := c.still(ctx, name, d.Part)
	if err != nil {
		// A Node that is deleted under a running agent comes back.
		return errors.Join(append(problems, fmt.Errorf("%w; so the server was not told that this node has left", err))...)
	}
	if err := c.leftAs(ctx, d.Cause); err != nil {
		problems = append(problems, fmt.Errorf("telling that %s stands still: %w", name, err))
	}
	return errors.Join(problems...)
}

// still sees to it that the agent stands still, and that no join goes on that would
// let it start: that one last, since an agent that waits for it would begin.
func (c *Client) still(ctx context.Context, name string, part Part) error {
	if part != LeftPart {
		if err := c.agent().Stop(ctx, name); err != nil {
			return err
		}
		return c.agent().Stop(ctx, JoinUnit)
	}
	runs, err := c.agent().Runs(ctx, name)
	if err == nil && runs {
		err = fmt.Errorf("%s runs still", name)
	}
	return err
}

func (c *Client) agent() Agent {
	if c.options.Agent != nil {
		return c.options.Agent
	}
	return systemctl("systemctl")
}

// drain asks until the node is drained or the time is up.
func (c *Client) drain(ctx context.Context, d Departure, end time.Time) error {
	var last error
	for {
		left := end.Sub(c.options.now())
		if left < time.Second {
			if last == nil {
				last = errors.New("there is no time for it")
			}
			return last
		}
		within := min(left, maxDrain)
		answer, err := c.Leave(ctx, wire.LeaveRequest{Cause: d.Cause, Within: int(within / time.Second), Stay: d.Stay})
		switch {
		case err == nil && answer.Drained:
			return nil
		case err == nil:
			return fmt.Errorf("pods that are there still: %s", strings.Join(answer.Left, ", "))
		}
		last = err
		if refused := (*RefusedError)(nil); errors.As(err, &refused) && refused.Final {
			return err
		}
		if c.options.wait(ctx, departPause) != nil {
			return last
		}
	}
}

// maxDrain is what a request may ask for.
const maxDrain = 15 * time.Minute

// leftAs reports that the agent is stopped, until the server answers or the time is up.
func (c *Client) leftAs(ctx context.Context, cause string) error {
	for {
		err := c.Left(ctx, cause)
		if refused := (*RefusedError)(nil); err == nil || errors.As(err, &refused) && refused.Final {
			return err
		}
		if c.options.wait(ctx, departPause) != nil {
			return err
		}
	}
}

// noteLeft records that this node has left, and lets no agent start before it has joined
// again.
func (c *Client) noteLeft() error {
	return c.onDisk(func(t *tree.Tree) error {
		r, err := readRecord(t)
		if err == nil && r != nil && r.State == Joined {
			r.State = HasLeft
			err = writeRecord(t, *r)
		}
		if err == nil {
			_, err = t.Remove(ReadyFile)
		}
		return err
	})
}

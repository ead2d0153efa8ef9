package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/internal/workflow"
)

// A timeoutClass is what the end of --timeout means for a command.
type timeoutClass int

const (
	changesSomething timeoutClass = iota // as Ctrl-C does, exit code 5
	onlyReads                            // fails, exit code 1
	runsOn                               // refused: it has no end of its own
)

// timeoutClasses has the commands by their path below the root. A command that is missing
// changes something.
var timeoutClasses = map[string]timeoutClass{
	"capture": changesSomething, "rollback": changesSomething, "rollout": changesSomething, "watch": changesSomething,
	"admission revoke": changesSomething, "config push": changesSomething, "config rollback": changesSomething,
	"cluster backup": changesSomething, "cluster chaos": changesSomething, "cluster down": changesSomething, "cluster init": changesSomething,
	"cluster keys": changesSomething, "cluster reimage": changesSomething, "cluster replace": changesSomething, "cluster resize": changesSomething, "cluster restore": changesSomething,
	"cluster scale": changesSomething, "cluster start": changesSomething, "cluster stop": changesSomething, "cluster up": changesSomething,

	"boot analyze": onlyReads, "boot diff": onlyReads, "boot show": onlyReads, "boot stats": onlyReads,
	"cluster agents": onlyReads, "cluster artifacts": onlyReads, "cluster endpoints": onlyReads, "cluster kubeconfig": onlyReads, "cluster logs": onlyReads, "cluster plan": onlyReads,
	"cluster status": onlyReads, "cluster validate": onlyReads, "completion bash": onlyReads, "completion fish": onlyReads, "completion powershell": onlyReads, "completion zsh": onlyReads,
	"config keygen": onlyReads, "config plan": onlyReads, "config status": onlyReads, "config validate": onlyReads,
	"operator export": onlyReads,
	"donors":          onlyReads, "explain": onlyReads, "nodes": onlyReads, "status": onlyReads, "version": onlyReads, "versions": onlyReads,
	"versions diff": onlyReads, "versions sbom": onlyReads,

	"admission": runsOn, "controller": runsOn, "operator": runsOn, "cluster proxy": runsOn, "cluster ssh": runsOn,
}

func timeoutClassOf(c *cobra.Command) timeoutClass { return timeoutClasses[commandPath(c)] }

// A timeoutError is the end of --timeout.
type timeoutError struct {
	after time.Duration
	what  string // is waited for; "" is no single service
}

func (e *timeoutError) Error() string {
	if e.what == "" {
		return "not done within " + e.after.String() + " (--timeout)"
	}
	return "no answer from " + e.what + " within " + e.after.String() + " (--timeout)"
}

// Is makes it end work as a signal does.
func (e *timeoutError) Is(target error) bool { return target == context.Canceled }

// limit puts --timeout on the command's context. The cause of its end names what is
// waited for then.
func (o *options) limit(c *cobra.Command) error {
	class := timeoutClassOf(c)
	if class == changesSomething && o.process.EndOnClosedPipe != nil {
		o.process.EndOnClosedPipe() // a node would stay out of service
	}
	switch {
	case class == runsOn && o.timeout != 0:
		return usagef("--timeout %s: %s runs until it is stopped", o.timeout, c.CommandPath())
	case class == runsOn:
		o.waits.Close() // it has a log, or a person in front of it
		return nil
	case o.timeout < 0:
		return usagef("--timeout %s: want 0s (no limit) or more", o.timeout)
	case o.timeout == 0:
		return nil
	}
	ctx, cancel := context.WithCancelCause(c.Context())
	expire := func() { cancel(&timeoutError{o.timeout, o.waits.silent()}) }
	if o.process.expires != nil {
		o.process.expires(expire)
	} else {
		time.AfterFunc(o.timeout, expire)
	}
	c.SetContext(ctx)
	return nil
}

// timedOut is err as the end of --timeout, if that is what ended the command.
func timedOut(c *cobra.Command, err error) error {
	var (
		late *timeoutError
		out  *workflow.Outcome
	)
	if c.Context() == nil || !errors.As(context.Cause(c.Context()), &late) {
		return err
	}
	dry := c.Flags().Lookup("dry-run")
	switch {
	case errors.As(err, &out) && out.Exit == workflow.ExitInterrupted:
		if stopped(out.Err) || out.Err.Error() == late.Error() { // a journal keeps the text alone
			out.Err = late
		} else {
			out.Err = fmt.Errorf("%w; %w", late, out.Err)
		}
		return err
	case out != nil || workflow.ExitCode(err) != workflow.ExitFailed:
		return err
	case timeoutClassOf(c) == onlyReads, dry != nil && dry.Value.String() == "true":
		return late
	}
	return &workflow.Outcome{Exit: workflow.ExitInterrupted, Err: late}
}

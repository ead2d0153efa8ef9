package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/node/join"
	"github.com/ortet/ortet/internal/wire"
)

const leaveHelp = `Usage: ortet-node leave [FLAGS]

Removes this node from its cluster: the admission server drains it, its kubelet,
k3s-agent or rke2-agent is stopped, and its Node is deleted. Settings are those
of 'ortet-node join'. A node that left joins again at its next start.

Exit codes: 0 done; 64 wrong usage or settings; 1 incomplete, with a list of
what was not done.

Flags:
`

// leaveFlags is the command line.
type leaveFlags struct {
	joinFlags
	join.Departure
	only     string
	poweroff bool
	back     bool
}

func runLeave(ctx context.Context, args []string, std stdio) int {
	f := leaveFlags{Departure: join.Departure{Within: 30 * time.Second}}
	fs := flagsOf("leave")
	f.define(fs)
	fs.StringVar(&f.Cause, "cause", "", "`REASON` to report, such as Preempt (default Asked, with --at-poweroff Shutdown)")
	fs.Var((*duration)(&f.Within), "within", "time limit `TIME` for all of it")
	fs.BoolVar(&f.Stay, "stay", false, "drain only and keep the Node: the machine will return")
	fs.StringVar(&f.only, "only", "", "do only one part: `drain|left`; drain: drain the node; left: delete the Node, the agent is stopped already")
	fs.BoolVar(&f.back, "back", false, "cancel leaving: remove its marks from the Node, which then accepts pods again")
	fs.BoolVar(&f.poweroff, "at-poweroff", false, "do nothing unless the machine is being powered off; a restart does not count")
	if code, ok := parse(fs, leaveHelp, args, std, f.check, f.complete); !ok {
		return code
	}
	if f.poweroff {
		off, err := join.PoweringOff(ctx)
		if err != nil {
			return failed(std, "leave", err)
		}
		if !off {
			return exitOK
		}
	}
	c, err := f.client(std)
	if err == nil && f.back {
		ctx, stop := context.WithTimeout(ctx, f.Within)
		defer stop()
		err = c.Back(ctx)
	} else if err == nil {
		err = c.Depart(ctx, f.Departure)
	}
	if err != nil {
		return failed(std, "leave", fmt.Errorf("not all was done: %w", err))
	}
	return exitOK
}

func (f *leaveFlags) check() error {
	f.Part = join.Part(f.only)
	if f.Cause == "" {
		f.Cause = "Asked"
		if f.poweroff {
			f.Cause = "Shutdown"
		}
	}
	problems := []error{onLinux()}
	if f.Part != join.WholePart && f.Part != join.DrainPart && f.Part != join.LeftPart {
		problems = append(problems, fmt.Errorf("--only %q: want drain or left", f.only))
	}
	if f.Stay && f.Part == join.LeftPart {
		problems = append(problems, errors.New("--stay and --only left contradict each other"))
	}
	if f.back && (f.Stay || f.poweroff || f.Part != join.WholePart) {
		problems = append(problems, errors.New("--back undoes a leave: --stay, --only and --at-poweroff contradict it"))
	}
	within := int(f.Within / time.Second)
	if (wire.LeaveRequest{Cause: "Asked", Within: within}).Validate() != nil {
		problems = append(problems, fmt.Errorf("--within %s: want 1s to 15m", f.Within))
		within = 1
	}
	if err := (wire.LeaveRequest{Cause: f.Cause, Within: within}).Validate(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

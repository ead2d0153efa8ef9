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

Has this node leave its cluster: the admission server drains it, its kubelet,
k3s-agent or rke2-agent is stopped, and its Node deleted. Settings are those of
'ortet-node join'. A node that has left joins anew at its next start.

Exit codes: 0 done; 64 wrong usage or settings; 1 something was not done, which
is named.

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
	fs.StringVar(&f.Cause, "cause", "", "why, a `WORD` such as Preempt (default Asked, with --at-poweroff Shutdown)")
	fs.Var((*duration)(&f.Within), "within", "how much `TIME` is left for all of it")
	fs.BoolVar(&f.Stay, "stay", false, "only drain, and keep the Node: the machine comes back")
	fs.StringVar(&f.only, "only", "", "do one part: `drain|left`; left: the agent stands still already")
	fs.BoolVar(&f.back, "back", false, "the machine stays after all: undo what leaving has marked at the Node, which then takes pods again")
	fs.BoolVar(&f.poweroff, "at-poweroff", false, "do nothing unless the machine is being powered off; not at a restart")
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

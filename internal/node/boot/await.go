package boot

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/systemd"
)

// lookEvery is how often Await looks. Whoever waits here is in nobody's way, and
// two questions each time cost nothing.
const lookEvery = 2 * time.Second

// Await returns once this boot is over: systemd has done all of the start's jobs,
// and where a waiter runs, there is a verdict; or when most has passed, or ctx has
// ended. verdict is the verdict's file; "" is the default.
func Await(ctx context.Context, o Options, verdict string, most time.Duration, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_, _, bootID := bootstrap.Identify(o.Root)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	done := false
	for {
		if !done {
			done = startDone(ctx, o)
		}
		if _, judged := bootstrap.Kept(o.Root, verdict, bootID); done && judged {
			return
		}
		select {
		case <-ctx.Done():
			log.Info("not waiting any longer", "startDone", done)
			return
		case <-tick.C:
		}
	}
}

// startDone asks systemd whether all of the start's jobs are done. Where there is
// none, nothing is waited for.
func startDone(ctx context.Context, o Options) bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil || !o.own() {
		return true
	}
	b, err := systemd.Dial(ctx, askTimeout, sockets()...)
	if err != nil {
		return false
	}
	defer b.Close()
	done := false
	r, err := b.Ask(systemd.Call{Path: systemd.Object, Iface: systemd.Properties, Member: "Get", Args: []string{systemd.Manager, "FinishTimestampMonotonic"}})
	if err == nil && r.Variant() == "t" {
		done = r.Body.U64() > 0
	}
	return done
}

// askTimeout limits a call of systemd.
const askTimeout = 20 * time.Second

// sockets are where systemd is asked: its own first, which spares the message bus
// the work and is there before that is; who is not root has to take the bus.
func sockets() []systemd.Address {
	return []systemd.Address{{Path: systemd.OwnSocket}, {Path: systemd.SharedSocket, Shared: true}}
}

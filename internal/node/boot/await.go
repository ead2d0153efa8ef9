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

// askTimeout limits a call of systemd.
const askTimeout = 20 * time.Second

func dialSystemd(ctx context.Context) (*systemd.Bus, error) {
	return systemd.Dial(ctx, askTimeout, systemd.Address{Path: systemd.OwnSocket}, systemd.Address{Path: systemd.SharedSocket, Shared: true})
}

// startDone asks systemd whether all of the start's jobs are done. Where there is
// none, nothing is waited for.
func startDone(ctx context.Context, o Options) bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil || !o.own() {
		return true
	}
	b, err := dialSystemd(ctx)
	if err != nil {
		return false
	}
	defer b.Close()
	var finished uint64
	err = b.Get(systemd.Object, systemd.Property{Iface: systemd.Manager, Name: "FinishTimestampMonotonic", To: &finished})
	return err == nil && finished > 0
}

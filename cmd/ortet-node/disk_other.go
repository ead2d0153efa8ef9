//go:build !linux

package main

import (
	"context"
	"log/slog"
	"runtime"

	"github.com/ortet/ortet/internal/node/generalize"
	"github.com/ortet/ortet/internal/wire"
)

func generalizeDisk(_ context.Context, _ generalizeFlags, o generalize.Options, _ func(string), _ *slog.Logger) wire.GeneralizeReport {
	return generalize.Fail(generalize.NewReport(o), &generalize.Refusal{
		Reason: "disks are generalised on Linux only; this is " + runtime.GOOS,
	})
}

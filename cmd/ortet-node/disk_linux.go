package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/ortet/ortet/internal/node/generalize"
	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// generalizeDisk opens what the flags name, generalises it and closes it.
func generalizeDisk(ctx context.Context, f generalizeFlags, o generalize.Options, progress func(string), log *slog.Logger) wire.GeneralizeReport {
	if f.root == "" {
		return generalize.Fail(generalize.NewReport(o), errors.New("finding a disk by its LUN is not built yet"))
	}
	return generalizeTree(ctx, f.root, o, progress, log)
}

func generalizeTree(ctx context.Context, dir string, o generalize.Options, progress func(string), log *slog.Logger) wire.GeneralizeReport {
	t, err := tree.Open(dir)
	if err != nil {
		return generalize.Fail(generalize.NewReport(o), &generalize.Refusal{Reason: err.Error()})
	}
	report := generalize.Run(ctx, t, o, progress, log)
	if err := t.Close(); err != nil {
		log.Warn("closing the tree", "error", err)
	}
	return report
}

package azure

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// Audit logs a line for every change that is begun: the verb, the target, how
// it went and how long the request took. It logs nothing else of a change,
// which may carry secrets. It belongs above Retry, so that a change has one
// line. A change that was not refused is logged at Info, a refused one at Warn.
func Audit(cloud Cloud, log *slog.Logger) Cloud { return around{cloud, auditor{log}} }

type auditor struct{ log *slog.Logger }

func (a auditor) around(ctx context.Context, c request, do func(context.Context) error) error {
	if c.change == nil {
		return do(ctx)
	}
	began := time.Now()
	err := do(ctx)
	level, attrs := slog.LevelInfo, []slog.Attr{
		slog.String("verb", c.change.Verb()),
		slog.String("target", string(c.change.Target())),
		slog.String("outcome", "begun"),
		slog.Duration("took", time.Since(began)),
	}
	if err != nil {
		level = slog.LevelWarn
		attrs[2] = slog.String("outcome", "refused")
		if ctx.Err() != nil { // nothing refused it
			level, attrs[2] = slog.LevelInfo, slog.String("outcome", "interrupted")
		}
		if k := fleet.KindOf(err); k != fleet.KindUnknown {
			attrs = append(attrs, slog.String("kind", string(k)))
		}
		var e *fleet.Error
		if errors.As(err, &e) && e.Code != "" {
			attrs = append(attrs, slog.String("code", e.Code))
		}
	}
	a.log.LogAttrs(ctx, level, "cloud change", attrs...)
	return err
}

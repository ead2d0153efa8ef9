package admission

import (
	"context"
	"log/slog"
	"net/netip"
	"time"
)

// facts are what is known of a request when it is decided, for the audit log. Unproven
// claims of the node stand in it until better is known.
type facts struct {
	operation string
	remote    string
	from      netip.Prefix // what counts as one address of the remote's
	by        string       // "document", "certificate"; "" where no proof is needed
	node      string       // only once the cloud or a certificate proves it
	instance  string
	vmID      string // only once Azure signed it, or the cloud returned it
	// proven: Azure, or a certificate of the cluster, identifies the client, and it is
	// within its rate
	proven    bool
	departure string // why a node leaves, by its own report: "Preempt"
}

// audit writes a decision: one line, whose message is always the same. Neither
// tokens nor nonces nor documents are in it. omitted is how many before it, of the same
// address and reason, had none.
func (s *Server) audit(ctx context.Context, f *facts, reason Reason, cause error, took time.Duration, omitted int) {
	level, decision := slog.LevelInfo, "granted"
	if reason != Granted {
		level, decision = slog.LevelWarn, "refused"
	}
	attributes := []slog.Attr{
		slog.String("operation", f.operation), slog.String("decision", decision), slog.String("reason", string(reason)),
		slog.String("remote", f.remote), slog.Float64("seconds", took.Round(time.Microsecond).Seconds()),
	}
	for _, a := range []struct{ key, value string }{{"by", f.by}, {"node", f.node}, {"instance", f.instance}, {"vmId", f.vmID}, {"departure", f.departure}} {
		if a.value != "" {
			attributes = append(attributes, slog.String(a.key, a.value))
		}
	}
	if omitted > 0 {
		attributes = append(attributes, slog.Int("omitted", omitted))
	}
	if cause != nil {
		text := cause.Error()
		attributes = append(attributes, slog.String("cause", text[:min(len(text), 2048)]))
	}
	s.config.Audit.LogAttrs(ctx, level, "admission", attributes...)
}

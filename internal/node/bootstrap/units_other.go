//go:build !linux && !windows

package bootstrap

import "log/slog"

// watchUnits reports nothing: systemd is not available.
func watchUnits(_ Options, _ []string, _ func(), _ *slog.Logger) unitSource { return noUnits{} }

// noUnits is the source where there is no systemd.
type noUnits struct{}

func (noUnits) look() (map[string]unitSeen, bool) { return nil, false }
func (noUnits) failed() []unitSeen                { return nil }
func (noUnits) retry()                            {}
func (noUnits) close()                            {}

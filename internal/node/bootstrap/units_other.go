//go:build !linux

package bootstrap

import "log/slog"

// watchUnits tells of nothing: there is no systemd.
func watchUnits(_ Options, _ []string, _ func(), _ *slog.Logger) unitSource { return noUnits{} }

package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build says which ortet this is.
type build struct {
	Version string `json:"version"`
	// Commit is empty where it was built outside a Git checkout.
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // there were uncommitted changes
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func newVersion(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			b := build{Version: o.process.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				b.readSettings(info.Settings)
			}
			return o.print(b, b.table)
		},
	}
}

func (b *build) readSettings(settings []debug.BuildSetting) {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
}

func (b *build) table(w io.Writer) {
	commit := first(b.Commit, "unknown")
	if b.Modified {
		commit += " (with uncommitted changes)"
	}
	fmt.Fprintf(w, "Version:   %s\nCommit:    %s\nGo:        %s\nPlatform:  %s/%s\n", b.Version, commit, b.Go, b.OS, b.Arch)
}

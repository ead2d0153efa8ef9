// Command live is `make live` and, with -clean, `make live-clean`.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/ortet/ortet/test/live"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(run()) }

func run() int {
	clean := flag.Bool("clean", false, "delete the resource groups that earlier runs left")
	flag.Parse()
	klog.SetLogger(logr.Discard()) // as ortet has it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	said := "ended; what was made is removed, which takes minutes. A second Ctrl-C leaves it, for: make live-clean"
	if *clean {
		said = "ended; the same command goes on with what is left"
	}
	ended := context.AfterFunc(ctx, func() {
		stop()
		fmt.Fprintln(os.Stderr, said)
	})
	defer ended() // before stop, which ends ctx, too
	p := live.Program{
		Getenv: os.Getenv, In: os.Stdin, Out: os.Stdout, Now: time.Now, Suffix: strings.ToLower(rand.Text()[:4]), Version: version,
		Load: live.Credentials(os.Getenv),
		Az: func(ctx context.Context, args ...string) error {
			az := exec.CommandContext(ctx, "az", args...) // #nosec G204 -- the arguments are the run's own
			az.Stderr = os.Stderr
			return az.Run()
		},
	}
	if *clean {
		return p.Clean(ctx)
	}
	return p.Run(ctx)
}

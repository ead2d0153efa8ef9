// Command ortet captures the OS disk of a healthy node as an image version, and
// points the node's scale set at it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // the image has no zones, and windows name them

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/ortet/ortet/internal/buildinfo"
	"github.com/ortet/ortet/internal/cli"
)

// version and image are set when it is linked; image is that of the same release, by digest.
var version, image string

func main() {
	// Client-go's logger is the whole process's, and writes into the display of what is
	// under way: what it has to say comes as an error too. Commands that log for a
	// machine to read give it a place in their log.
	klog.SetLogger(logr.Discard())
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, end := context.WithCancel(context.Background())
	ctx, stop := signal.NotifyContext(ctx, signals...)
	// A second Ctrl-C ends the process. SIGHUP comes twice where a terminal closes: from the
	// kernel, and from the shell.
	restore := func() { signal.Reset(os.Interrupt, syscall.SIGTERM) }
	context.AfterFunc(ctx, restore)
	code := cli.Run(ctx, os.Args[1:], cli.Process{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Name: os.Args[0], Version: buildinfo.Version(version), Image: image, Restore: restore,
		EndOnClosedPipe: func() { cli.OnClosedPipe(end, os.Stdout, os.Stderr) },
	})
	stop()
	os.Exit(code)
}

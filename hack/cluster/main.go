// Command cluster runs a throwaway Kubernetes control plane until it is asked to
// end, for the demo and for trying things by hand:
//
//	go run ./hack/cluster --dir DIR   # then: export KUBECONFIG=DIR/kubeconfig
//
// DIR/kubeconfig appears when the cluster is ready.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ortet/ortet/test/controlplane"
)

func main() {
	os.Exit(exitCode(os.Args[1:]))
}

func exitCode(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, args, os.Stdout)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		return 64
	}
	fmt.Fprintln(os.Stderr, "cluster:", err)
	return 1
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	dir := flags.String("dir", "", "folder for keys, data, logs and the kubeconfig (required; must be new)")
	listen := flags.String("listen", "127.0.0.1", "address the API server listens on")
	port := flags.Int("port", 0, "port of the API server; 0 takes a free one")
	advertise := flags.String("advertise", "", "address that the service kubernetes leads to")
	hosts := flags.String("hosts", "", "more names and addresses of the API server, separated by commas")
	podCIDR := flags.String("pod-cidr", "", "range from which each node gets its pods' addresses")
	grace := flags.Duration("node-monitor-grace-period", 0, "silence after which a node is Unknown; 0 is Kubernetes' default")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("--dir is required")
	}
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		return err
	}
	config := controlplane.Config{
		// Readers wait for DIR/kubeconfig, which may be there only once the
		// cluster is ready, so the cluster's own lies deeper.
		Dir:    filepath.Join(*dir, "controlplane"),
		Binary: binary, Listen: *listen, Port: *port, Advertise: *advertise, PodCIDR: *podCIDR,
		NodeMonitorGracePeriod: *grace,
	}
	if *hosts != "" {
		config.Hosts = strings.Split(*hosts, ",")
	}
	cp, err := controlplane.Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, cp.Stop(stop))
	}()
	content, err := os.ReadFile(cp.Kubeconfig)
	if err != nil {
		return err
	}
	path := filepath.Join(*dir, "kubeconfig")
	temporary := path + ".new"
	if err := errors.Join(os.WriteFile(temporary, content, 0o600), os.Rename(temporary, path)); err != nil { // #nosec G703 -- the folder that the caller named
		return err
	}
	if _, err := fmt.Fprintf(out, "ready: %s\nexport KUBECONFIG=%s\n", cp.Server, path); err != nil {
		return err
	}
	return cp.Wait(ctx)
}

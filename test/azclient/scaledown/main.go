// Scaledown scales a pool in as cluster-autoscaler would, by the Azure client that
// cluster-autoscaler uses: once a node of the cluster is cordoned, it deletes each
// empty node that nothing protects. It prints "delete NODE" when it begins a
// deletion, and ends with 0 at SIGTERM, after the scan that is under way.
//
// The API server is reached without credentials, by `kubectl proxy` for instance.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ortet/ortet/test/azclient"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "scaledown:", err)
		os.Exit(1)
	}
}

func run() error {
	a := autoscaler{out: os.Stdout}
	config := flag.String("azure-config", "", "azure.json")
	every := flag.Duration("scan-interval", 10*time.Second, "interval between scans")
	flag.StringVar(&a.cluster.URL, "api-server", "", "URL of the API server, which asks for no credentials")
	flag.StringVar(&a.pool, "pool", "", "scale set whose instances are deleted")
	flag.IntVar(&a.minimum, "minimum", 1, "size of the pool below which nothing is deleted")
	flag.Parse()
	if *config == "" || a.cluster.URL == "" || a.pool == "" || *every <= 0 || flag.NArg() > 0 {
		return fmt.Errorf("want --azure-config, --api-server, --pool, a positive --scan-interval and no arguments")
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	var err error
	if a.azure, err = azclient.Connect(*config); err != nil {
		return err
	}
	return a.run(context.Background(), stop.Done(), *every)
}

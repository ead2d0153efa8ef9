// Command web is the lab's workload: it answers a request for /dev/nvidia0 with the first
// bytes of this device, and every other with its host name, on port 8080 or that in its
// first argument, until it is told to end.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const device = "/dev/nvidia0"

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	port := "8080"
	if len(args) > 0 {
		port = args[0]
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	name, err := os.Hostname()
	if err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		return 1
	}
	server := &http.Server{
		Addr:              ":" + port,
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != device {
				_, _ = fmt.Fprintln(w, name) // the client's loss
				return
			}
			file, err := os.Open(device)
			if err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
				return
			}
			defer func() { _ = file.Close() }()        // it was only read
			_, _ = io.Copy(w, io.LimitReader(file, 4)) // a device has no end
		}),
	}
	go func() {
		<-ctx.Done()
		_ = server.Close() // listening ends, and with it run
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, "web:", err)
		return 1
	}
	return 0
}

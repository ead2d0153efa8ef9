package cli

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/workflow"
)

// Ctrl-C ends what waits for standard input.
func TestInterruptedReading(t *testing.T) {
	for _, args := range [][]string{{"explain", "-"}, {"boot", "analyze", "-"}} {
		ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
		interrupted, interrupt := context.WithCancel(ctx)
		in, w := io.Pipe()
		codes := make(chan int, 1)
		go func() {
			codes <- Run(interrupted, args, Process{In: in, Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }})
		}()
		_, _ = w.Write([]byte("a line\n")) // it reads
		interrupt()
		select {
		case code := <-codes:
			if code != workflow.ExitInterrupted {
				t.Errorf("%v: code %d, want %d", args, code, workflow.ExitInterrupted)
			}
		case <-ctx.Done():
			t.Errorf("%v: it reads on", args)
		}
		_ = w.Close() // it cannot fail
		end()
	}
}

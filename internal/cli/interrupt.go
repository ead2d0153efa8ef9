package cli

import (
	"context"
	"errors"
	"strings"
	"time"
)

// explainInterrupt tells the person who pressed Ctrl-C why it does not end at
// once, and lets a second one end it. The caller stops it when the work ended.
func (o *options) explainInterrupt(ctx context.Context, show *progress) (stop func()) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
		case <-ctx.Done():
			if o.process.Restore != nil {
				o.process.Restore()
			}
			select {
			case <-ended: // the donor was not out of service
				return
			case <-time.After(frameEvery):
			}
			begin, again := "Interrupted.", " again"
			if late := (*timeoutError)(nil); errors.As(context.Cause(ctx), &late) {
				begin, again = "The time of --timeout is over.", ""
			}
			var text strings.Builder
			paragraph(&text, resultWidth, "", "", begin+" A node that is out of service returns to service first; this takes as long as its start. "+
				"Press Ctrl-C"+again+" to exit at once; then run the same command again to restore the node.")
			show.Say(strings.TrimSuffix(text.String(), "\n"))
		}
	}()
	return func() { close(ended) }
}

// interruptible returns what read returns, or ctx's error if that ends first: a read of
// standard input or of a FIFO does not end by itself. Read goes on until the process ends.
func interruptible[T any](ctx context.Context, read func() (T, error)) (T, error) {
	var value T
	done := make(chan error, 1)
	go func() {
		v, err := read()
		if err == nil {
			value = v
		}
		done <- err
	}()
	select {
	case err := <-done:
		return value, err
	case <-ctx.Done():
		return *new(T), context.Cause(ctx)
	}
}

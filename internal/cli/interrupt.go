package cli

import (
	"context"
	"errors"
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
			show.Say(begin + " If the node is out of service, it\n" +
				"returns to service first; this takes as long as its start. Press Ctrl-C" + again + "\n" +
				"to exit at once; then run the same command again to restore the node.")
		}
	}()
	return func() { close(ended) }
}

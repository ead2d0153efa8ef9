package cli

import (
	"context"
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
			show.Say("Interrupted. If the node is out of service, it returns to service first; this\n" +
				"takes as long as its start. Press Ctrl-C again to exit at once; then run the\n" +
				"same command again to restore the node.")
		}
	}()
	return func() { close(ended) }
}

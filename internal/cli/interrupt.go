package cli

import "context"

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
			show.Say("Interrupted. If the node is out of service it is given back first, which takes\n" +
				"as long as its start. Press Ctrl-C again to end at once; the same command\n" +
				"then puts it right.")
		}
	}()
	return func() { close(ended) }
}

package join

import (
	"context"

	"github.com/ortet/ortet/internal/wire"
)

// Back tells the server that what a leave was for is over, or did not come: it takes
// its marks off the Node. Asking again is harmless.
func (c *Client) Back(ctx context.Context) error {
	_, err := tell[struct{}](ctx, c, wire.BackPath, struct{}{}, tellTimeout)
	return err
}

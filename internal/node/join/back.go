package join

import (
	"context"

	"github.com/ortet/ortet/internal/wire"
)

// Back reports to the server that the cause of a leave is over, or did not come: it removes
// its marks from the Node. It is idempotent.
func (c *Client) Back(ctx context.Context) error {
	_, err := tell[struct{}](ctx, c, wire.BackPath, struct{}{}, tellTimeout)
	return err
}

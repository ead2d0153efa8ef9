package engine

import (
	"context"
	"errors"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/plan"
)

var errSoon = errors.New("not built yet")

func (e *Engine) Capture(ctx context.Context, request CaptureRequest) (CaptureResult, error) {
	return CaptureResult{}, errSoon
}
func (e *Engine) Plan(ctx context.Context, request CaptureRequest) (plan.Plan, error) {
	return plan.Plan{}, errSoon
}
func (e *Engine) Rollback(ctx context.Context, request RollbackRequest) (RollbackResult, error) {
	return RollbackResult{}, errSoon
}
func (e *Engine) PlanRollback(ctx context.Context, request RollbackRequest) (plan.Plan, error) {
	return plan.Plan{}, errSoon
}
func (e *Engine) Status(ctx context.Context, pools []fleet.ResourceID) ([]PoolStatus, error) {
	return nil, errSoon
}

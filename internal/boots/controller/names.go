package controller

import (
	"errors"

	"github.com/ortet/ortet/internal/fleet"
)

// asError finds the cloud's error in a chain.
func asError(err error) (*fleet.Error, bool) {
	var e *fleet.Error
	return e, errors.As(err, &e)
}

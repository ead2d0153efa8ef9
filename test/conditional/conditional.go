// Package conditional sees to it that writes of what others write, too, are conditional: a change
// that can have the ETag of what it was computed from has one.
package conditional

import (
	"context"
	"reflect"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// Cloud calls wrong with the verb of each change that could have an ETag and has none.
func Cloud(cloud azure.Cloud, wrong func(verb string)) azure.Cloud { return checked{cloud, wrong} }

type checked struct {
	azure.Cloud
	wrong func(verb string)
}

func (c checked) Begin(ctx context.Context, change fleet.Change) (fleet.Token, error) {
	if f := reflect.ValueOf(change).FieldByName("Etag"); f.IsValid() && f.IsZero() {
		c.wrong(change.Verb())
	}
	return c.Cloud.Begin(ctx, change)
}

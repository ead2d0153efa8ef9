package capture

import (
	"context"
	"slices"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
)

// History lists the versions of all of a pool's image definitions, in no order, and the gallery's
// definitions. image is the model's: Azure's list may lack its definition for a minute.
func (c Config) History(ctx context.Context, pool fleet.ResourceID, image fleet.ImageReference) ([]fleet.ImageVersion, []fleet.Definition, error) {
	all, err := c.Cloud.Definitions(ctx, plan.DefinitionOf(pool).Parent())
	if err != nil {
		return nil, nil, err
	}
	versions, err := azure.VersionsOf(ctx, c.Cloud, definitionsOf(fleet.Pool{ID: pool, Model: fleet.Model{Image: image}}, all, "")...)
	return versions, all, err
}

// Named lists the versions of the pool's image definition that its model names, none where it names none.
func (c Config) Named(ctx context.Context, pool fleet.Pool) ([]fleet.ImageVersion, error) {
	definition := plan.NamedDefinition(pool.ID, pool.Model.Image)
	if definition == "" {
		return nil, nil
	}
	return c.Cloud.Versions(ctx, definition)
}

// definitionsOf returns the ids of the pool's definitions, with that of its model and another.
func definitionsOf(pool fleet.Pool, all []fleet.Definition, another fleet.ResourceID) (ids []fleet.ResourceID) {
	ids = fleet.Each(plan.DefinitionsOf(pool.ID, all), func(d fleet.Definition) fleet.ResourceID { return d.ID })
	for _, id := range []fleet.ResourceID{plan.NamedDefinition(pool.ID, pool.Model.Image), another} {
		if id != "" && !slices.ContainsFunc(ids, id.Equal) {
			ids = append(ids, id)
		}
	}
	return ids
}

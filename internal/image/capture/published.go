package capture

import (
	"cmp"
	"context"

	"github.com/ortet/ortet/internal/fleet"
)

// A Published image version is what another tool needs to make machines of it.
type Published struct {
	Subscription      string           `json:"subscription"`
	ResourceGroup     string           `json:"resourceGroup"`
	Gallery           string           `json:"gallery"`
	Definition        string           `json:"definition"`
	DefinitionID      fleet.ResourceID `json:"definitionId"`
	Version           string           `json:"version"`
	Location          string           `json:"location"`
	Regions           []string         `json:"regions"`
	ExcludeFromLatest bool             `json:"excludeFromLatest"`
	OSState           string           `json:"osState"`
	Generation        string           `json:"generation"`
	Architecture      string           `json:"architecture"`
	SecurityType      string           `json:"securityType,omitempty"`
	Controllers       string           `json:"controllers,omitempty"`
	PlanPublisher     string           `json:"planPublisher,omitempty"` // the Marketplace plan that machines have to name
	PlanProduct       string           `json:"planProduct,omitempty"`
	PlanName          string           `json:"planName,omitempty"`
}

// published reads the version and its definition. Of what cannot be read the result has the
// names alone.
func (s *Service) published(ctx context.Context, st state) (p Published, err error) {
	id := st.Names.Version
	v, versionErr := s.Cloud.Version(ctx, id)
	d, err := s.Cloud.Definition(ctx, st.Names.Definition)
	return Published{
		Subscription: id.Segment("subscriptions"), ResourceGroup: id.Segment("resourceGroups"),
		Gallery: id.Segment("galleries"), Definition: id.Segment("images"), DefinitionID: st.Names.Definition, Version: id.Name(),
		Location: v.Location, Regions: v.Regions, ExcludeFromLatest: v.ExcludeFromLatest,
		OSState: d.OSState, Generation: d.Generation, Architecture: d.Architecture, SecurityType: d.SecurityType, Controllers: d.Controllers,
		PlanPublisher: d.PlanPublisher, PlanProduct: d.PlanProduct, PlanName: d.PlanName,
	}, cmp.Or(versionErr, err)
}

package capture

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// Contents is an image version with the list of what is in it.
type Contents struct {
	Version  fleet.ImageVersion
	Manifest wire.Manifest
}

// Contents reads what is in a version of a pool, by the version's name; or by its ARM id, for which
// the pool may be "". A version that is not there or of which nothing is kept is refused.
func (c Config) Contents(ctx context.Context, pool fleet.ResourceID, version string) (Contents, error) {
	v, err := c.versionNamed(ctx, pool, version)
	if err != nil {
		return Contents{}, err
	}
	if pool == "" {
		pool = plan.PoolOf(v.ID.Parent())
	}
	refuse := func(code, what, wayOut string) (Contents, error) {
		problem := fleet.Problem{Code: code, On: string(v.ID), What: what, WayOut: wayOut}
		return Contents{}, &workflow.Refused{Problems: []fleet.Problem{problem}}
	}
	sha := v.Tags[fleet.TagManifest]
	if sha == "" {
		return refuse("NoManifest", "what is in this version was not listed", "name a version with the tag "+fleet.TagManifest+
			": those that an earlier release of Ortet or kamino made, and those of which the list could not be kept, lack it")
	}
	if !isSHA256(sha) {
		return refuse("NoManifest", "its tag "+fleet.TagManifest+" is no SHA-256 in hexadecimal",
			"name another version: somebody changed the tag")
	}
	if pool == "" {
		return refuse("NoPool", "the name of its image definition does not say of which scale set it is",
			"give the scale set's name or ARM id, and the version's name")
	}
	kept, err := c.Cluster.GetSecret(ctx, pool, cluster.Manifest, sha)
	if fleet.Is(err, fleet.KindNotFound) {
		return refuse("NoManifest", "the list of what is in this version is not kept in namespace "+c.Namespace+" of this cluster",
			"use the cluster and --namespace from which it was captured; "+
				"if these are right, it was dropped to make room for what a rollback needs")
	}
	if err != nil {
		return Contents{}, err
	}
	m, err := wire.ReadManifest([]byte(kept.Data.Reveal()))
	if err != nil {
		return Contents{}, &fleet.Error{Op: "read what is in an image version", Resource: string(v.ID), Kind: fleet.KindInvalid, Err: err,
			Remedy: "the capture kept it like this: name another version"}
	}
	return Contents{v, m}, nil
}

func isSHA256(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && len(sum) == sha256.Size
}

func (c Config) versionNamed(ctx context.Context, pool fleet.ResourceID, version string) (fleet.ImageVersion, error) {
	id := fleet.ResourceID(version)
	if strings.HasPrefix(version, "/") {
		v, err := c.Cloud.Version(ctx, id)
		if !fleet.Is(err, fleet.KindNotFound) {
			return v, err
		}
	} else {
		p, err := c.Cloud.Pool(ctx, pool)
		if fleet.IgnoreNotFound(err) != nil {
			return fleet.ImageVersion{}, err
		}
		versions, _, err := c.History(ctx, pool, p.Model.Image)
		if fleet.IgnoreNotFound(err) != nil {
			return fleet.ImageVersion{}, err
		}
		for _, v := range plan.NewestFirst(versions) {
			if v.Name == version {
				return v, nil
			}
		}
		id = pool
	}
	problem := fleet.Problem{Code: "NoVersion", On: string(id), What: "there is no image version " + fleet.ResourceID(version).Name(),
		WayOut: "ortet versions lists those that are there"}
	return fleet.ImageVersion{}, &workflow.Refused{Problems: []fleet.Problem{problem}}
}

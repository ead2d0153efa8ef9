package plan

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// A pool has an image definition for each kind of machine that it had. Azure does not change
// generation and architecture of a definition. Features it does change since API 2024-03-03
// (allowUpdateImage, and startsAtVersion of a feature: armcompute 6.2.0; Azure/AgentBaker's
// vhdbuilder changes SecurityType so). Ortet makes another definition for those, too: versions from
// before would lack the feature below one definition, for whose latest a model may ask, the change
// cannot be undone for a rollback, and clients of older API versions do not see startsAtVersion.

const publisher = "VMSS-Prototype-Pattern"

// maxSKU limits what names a definition to buyers; Azure has publisher, offer and SKU but once in a gallery.
const maxSKU = 64

// DefinitionOf returns the image definition of the pool's first kind, which has kamino's name.
func DefinitionOf(pool fleet.ResourceID) fleet.ResourceID { return ofKind(pool, "") }

func ofKind(pool fleet.ResourceID, kind string) fleet.ResourceID {
	gallery := "SIG_" + regexp.MustCompile(`[^A-Za-z0-9_.]`).ReplaceAllString(pool.Segment("resourceGroups"), "_")
	return pool.In("galleries", gallery[:min(len(gallery), maxName)]).Child("images", fit(maxName, "kamino-", pool.Name(), "-prototype"+kind))
}

// skuOf is the SKU of a definition. Names of scale sets have no dot, so it is no other pool's.
func skuOf(pool, kind string) string {
	return when(kind == "", pool) + when(kind != "", fit(maxSKU, "", pool, strings.Replace(kind, "-", ".", 1)))
}

// kindOf names what a definition fixes: "-v2-tl-nvme".
func kindOf(d fleet.Definition) string {
	return "-" + strings.ToLower(d.Generation) + when(strings.EqualFold(d.Architecture, "Arm64"), "-arm64") + when(d.SecurityType == "TrustedLaunch", "-tl") +
		when(strings.Contains(d.Controllers, "NVMe"), "-nvme") + when(d.Hibernates, "-hibernate")
}

// kindIn returns the kind that a definition of the pool has in its name, and whether it has the name of one.
func kindIn(pool, definition fleet.ResourceID) (kind string, is bool) {
	kind = regexp.MustCompile(`-v[12](-arm64)?(-tl)?(-nvme)?(-hibernate)?$`).FindString(strings.ToLower(definition.Name()))
	return kind, definition.Equal(ofKind(pool, kind))
}

// IsDefinitionOf reports whether an image definition has a name of the pool's.
func IsDefinitionOf(pool, definition fleet.ResourceID) bool {
	_, is := kindIn(pool, definition)
	return is
}

// PoolOf returns the scale set of which a definition has the name; "" if it is none of Ortet's, or
// had to shorten the name.
func PoolOf(definition fleet.ResourceID) fleet.ResourceID {
	name := definition.Name()
	if at := strings.LastIndex(strings.ToLower(name), "-prototype"); at >= 0 && len(name) > len("kamino-") {
		pool := definition.In("virtualMachineScaleSets", name[min(at, len("kamino-")):at])
		return when(IsDefinitionOf(pool, definition), pool)
	}
	return ""
}

// NamedDefinition returns the pool's definition that an image is of; "" if it is of none.
func NamedDefinition(pool fleet.ResourceID, image fleet.ImageReference) fleet.ResourceID {
	definition := cmp.Or(image.LatestOf(), image.Exact().Parent())
	return when(IsDefinitionOf(pool, definition), definition)
}

// DefinitionsOf returns those of a gallery's definitions that are the pool's, its first kind's
// first. One of another kind has the SKU that Ortet gave it, which cannot be changed: else it is a stranger's.
func DefinitionsOf(pool fleet.ResourceID, all []fleet.Definition) []fleet.Definition {
	own := slices.DeleteFunc(slices.Clone(all), func(d fleet.Definition) bool {
		kind, is := kindIn(pool, d.ID)
		return !is || kind != "" && !(strings.EqualFold(d.Publisher, publisher) && strings.EqualFold(d.SKU, skuOf(pool.Name(), kind)))
	})
	slices.SortFunc(own, func(a, b fleet.Definition) int {
		return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), strings.Compare(string(a.ID), string(b.ID)))
	})
	return own
}

// FindDefinition returns the definition with the id; nil for none.
func FindDefinition(all []fleet.Definition, id fleet.ResourceID) *fleet.Definition {
	if i := slices.IndexFunc(all, func(d fleet.Definition) bool { return d.ID.Equal(id) }); i >= 0 {
		return &all[i]
	}
	return nil
}

// ChooseDefinition returns the image definition of the donor's kind, nil where it has to be made, and
// why that is not the one of the pool's first kind.
func ChooseDefinition(o Observed) (id fleet.ResourceID, d *fleet.Definition, why string) {
	first, own := DefinitionOf(o.Pool.ID), DefinitionsOf(o.Pool.ID, o.Definitions)
	d = FindDefinition(own, first)
	if o.Donor == nil {
		first = cmp.Or(NamedDefinition(o.Pool.ID, o.Pool.Model.Image), first)
		return first, FindDefinition(own, first), ""
	}
	if o.Disk == nil || o.Instance == nil {
		return first, d, ""
	}
	another := ofKind(o.Pool.ID, kindOf(NewDefinition(first, o, nil)))
	if made := FindDefinition(own, another); d == nil && made == nil {
		return first, nil, ""
	} else if d == nil {
		return another, made, ""
	} else if lacks := kindLacks(*d, o); len(lacks) > 0 {
		var all []string
		for _, l := range lacks {
			all = append(all, l.String())
		}
		return another, made, strings.Join(all, "; ")
	}
	return first, d, ""
}

// A lack is a member of a definition that does not fit a donor.
type lack struct{ what, has, needs string }

func (l lack) String() string {
	return fmt.Sprintf("the image definition's %s is %s, the donor needs %s", l.what, l.has, l.needs)
}

// kindLacks returns why a definition is of another kind than the donor.
func kindLacks(d fleet.Definition, o Observed) (all []lack) {
	want := NewDefinition(d.ID, o, nil)
	need := func(what, has, needs string, fits bool) {
		if !fits {
			all = append(all, lack{what, has, needs})
		}
	}
	same := func(what, has, needs string) { need(what, has, needs, strings.EqualFold(has, needs)) }
	same("generation", cmp.Or(d.Generation, "V1"), want.Generation)
	same("architecture", cmp.Or(d.Architecture, "x64"), want.Architecture)
	has, needs := cmp.Or(d.SecurityType, "Standard"), cmp.Or(want.SecurityType, "Standard")
	need("security type", has, needs, securityFits(has, needs))
	need("disk controller", cmp.Or(d.Controllers, "SCSI"), "NVMe", !needsNVMe(o) || hasNVMe(d))
	need("support of hibernation", "missing", "IsHibernateSupported", d.Hibernates || !want.Hibernates || !o.Pool.Hibernates)
	return all
}

// SameKind reports whether a definition that exists has the kind of one that was to be created.
func SameKind(d, wanted fleet.Definition) bool {
	return strings.EqualFold(cmp.Or(d.Generation, "V1"), wanted.Generation) && strings.EqualFold(cmp.Or(d.Architecture, "x64"), wanted.Architecture) &&
		securityFits(cmp.Or(d.SecurityType, "Standard"), cmp.Or(wanted.SecurityType, "Standard")) &&
		(hasNVMe(d) || !hasNVMe(wanted)) && (d.Hibernates || !wanted.Hibernates)
}

// securityFits reports whether machines of a security type come from a definition with that feature.
// TrustedLaunchSupported is for Standard and TrustedLaunch.
func securityFits(has, needs string) bool {
	kind, supports := strings.CutSuffix(strings.ToLower(has), "supported")
	return kind == strings.ToLower(needs) || supports && (needs == "Standard" || strings.HasPrefix(kind, strings.ToLower(needs)))
}

func hasNVMe(d fleet.Definition) bool {
	return strings.Contains(strings.ToUpper(d.Controllers), "NVME")
}

// CannotBoot says what of the pool's model, with these sizes, does not boot versions of a definition, and
// why; "" means that all does, as far as Azure shows.
func CannotBoot(d fleet.Definition, pool fleet.Pool, sizes []fleet.SizeInfo) (what, why string) {
	for _, size := range sizes {
		if why := doesNotFit(d, size); why != "" {
			return "size " + size.Name, why
		}
	}
	has, needs := cmp.Or(d.SecurityType, "Standard"), cmp.Or(pool.Model.SecurityType, "Standard")
	switch {
	case !securityFits(has, needs):
		return "security type " + needs, "the definition's is " + has
	case pool.Model.NVMe && !hasNVMe(d):
		return "disk controller NVMe", "the definition's is " + cmp.Or(d.Controllers, "SCSI")
	case pool.Hibernates && !d.Hibernates:
		return "hibernation", "the definition lacks IsHibernateSupported"
	}
	return "", ""
}

// doesNotFit says why machines of a size cannot have versions of a definition.
func doesNotFit(d fleet.Definition, size fleet.SizeInfo) string {
	architecture, generation := cmp.Or(d.Architecture, "x64"), cmp.Or(d.Generation, "V1")
	return cmp.Or(
		when(size.Architecture != "" && !strings.EqualFold(size.Architecture, architecture), "the architecture is "+size.Architecture+", not "+architecture),
		when(len(size.Generations) > 0 && !slices.Contains(size.Generations, generation), "the size does not boot generation "+generation),
		when(onlyNVMe(&size) && !hasNVMe(d), "the size has its disks by NVMe alone"),
	)
}

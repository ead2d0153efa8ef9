package prototype

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// An Original is what a model was before it came to use the pool's prototypes.
type Original struct {
	Image fleet.ImageReference `json:"image"`
	// CustomData is the SHA-256 of the model's, which the Vault has; "" where it is
	// not known.
	CustomData string `json:"customData,omitempty"`
	// Replaced is true where a rollback or a baked capture replaced what is not known.
	Replaced   bool                `json:"replaced,omitempty"`
	Extensions []OriginalExtension `json:"extensions,omitempty"`
	At         time.Time           `json:"at"` // when it was recorded
}

// Missing names those of its extensions that a model lacks.
func (o Original) Missing(model fleet.Model) (missing []string) {
	for _, e := range o.Extensions {
		if !slices.ContainsFunc(model.Extensions, func(x fleet.Extension) bool { return strings.EqualFold(x.Name, e.Name) }) {
			missing = append(missing, e.Name)
		}
	}
	return missing
}

// NoSettings is the hash of settings that an extension does not have.
const NoSettings = "none"

// An OriginalExtension is an extension of an Original, with the SHA-256 of its settings,
// which the Vault has: NoSettings for none, "" if not known.
type OriginalExtension struct {
	fleet.Extension
	PublicSHA256    string `json:"publicSha256,omitempty"`
	ProtectedSHA256 string `json:"protectedSha256,omitempty"`
}

// Handler names the extension's handler, as its folder on a node does.
func (e OriginalExtension) Handler() string { return e.Publisher + "." + e.Type }

// OriginalExtensions records a model's extensions. What is known of the protected settings
// of an extension in before holds as long as the rest of that extension is the same.
func OriginalExtensions(model []fleet.Extension, before []OriginalExtension) (all []OriginalExtension) {
	for _, e := range model {
		x := OriginalExtension{Extension: e, PublicSHA256: NoSettings}
		if text := e.Settings.Reveal(); text != "" {
			sum := sha256.Sum256([]byte(text))
			x.PublicSHA256 = hex.EncodeToString(sum[:])
		}
		if e.KeyVault != nil {
			x.ProtectedSHA256 = NoSettings
		}
		for _, old := range before {
			if strings.EqualFold(old.Name, x.Name) && old.Handler() == x.Handler() && old.PublicSHA256 == x.PublicSHA256 && old.ForceUpdateTag == x.ForceUpdateTag && x.KeyVault == nil {
				x.ProtectedSHA256 = old.ProtectedSHA256
			}
		}
		all = append(all, x)
	}
	return all
}

// A Return is what a rollback comes down to.
type Return struct {
	To fleet.ImageVersion
	// Original is set instead of To where the model goes back to before its first
	// capture.
	Original *Original
	// TagFrom is the version to tag as rolled back from; "" where the model
	// goes forward, or used no prototype.
	TagFrom fleet.ResourceID
	// Untag is true where To was rolled back from earlier, and is wanted again.
	Untag bool
	// NothingToDo is true where the model uses To already, and its tag is right.
	NothingToDo bool
}

// Image is what the model is pointed at.
func (r Return) Image() fleet.ImageReference {
	if r.Original != nil {
		return r.Original.Image
	}
	return fleet.ImageReference{ID: r.To.ID}
}

// Name names that for people: a version's name, or an image's.
func (r Return) Name() string {
	if r.Original != nil {
		return r.Original.Image.Text()
	}
	return r.To.Name
}

const (
	// Previous asks for the version before the model's, by publishing date, or where
	// there is none for ToOriginal.
	Previous = "previous"
	// ToOriginal asks for what the model was before its first capture.
	ToOriginal = "original"
)

// ReturnTo decides what a rollback to a version's name, Previous or ToOriginal comes
// down to. original is nil where it was not recorded. problem is nil where it can be
// done.
func ReturnTo(versions []fleet.ImageVersion, pool fleet.Pool, original *Original, to string) (r Return, problem *fleet.Problem) {
	definition := DefinitionOf(pool.ID)
	refuse := func(code, what, wayOut string) (Return, *fleet.Problem) {
		return Return{}, &fleet.Problem{Code: code, On: string(definition), What: what, WayOut: wayOut}
	}
	sorted := NewestFirst(versions)
	current, known := VersionOf(versions, pool.Model.Image, pool.Location)
	var target *fleet.ImageVersion
	for i := range sorted {
		v := &sorted[i]
		if to == "" || to == Previous {
			older := !known || v.Published.Before(current.Published)
			if older && v.ProvisioningState == Succeeded && !RolledBack(*v) && !v.ID.Equal(current.ID) {
				target = v
				break
			}
		} else if v.Name == to {
			target = v
			break
		}
	}
	there := original != nil && original.Image.Same(pool.Model.Image)
	if original != nil && (to == ToOriginal || target == nil && (to == "" || to == Previous) && !there) {
		r = Return{Original: original, NothingToDo: there}
		if known {
			r.TagFrom = current.ID
		}
		return r, nil
	}
	if target == nil {
		if to == ToOriginal {
			return refuse("NoOriginal", "what the model was before its first capture is not recorded: an earlier release captured it first", "set its image by az vmss update, or name a version by --to")
		}
		if to == "" || to == Previous {
			if len(versions) == 0 && original == nil {
				return refuse("NoPrevious", "nothing was captured of this pool yet: there is nothing to go back to", "ortet capture NODE makes its first version")
			}
			if there {
				return refuse("NoPrevious", "the model is as it was before the first capture: there is nothing to go back to", "see ortet status for the versions, and name one by --to")
			}
			return refuse("NoPrevious", "no earlier version is kept, and nothing is recorded of before the first capture", "see ortet status for the versions, and name one by --to")
		}
		return refuse("NoVersion", "version "+to+" does not exist", "see ortet status for the versions")
	}
	if target.ProvisioningState != Succeeded {
		return refuse("VersionNotReady", "version "+target.Name+" is "+target.ProvisioningState, "name one that is Succeeded")
	}
	r = Return{To: *target, Untag: RolledBack(*target)}
	if target.ID.Equal(pool.Model.Image.ID) {
		r.NothingToDo = !r.Untag
		return r, nil
	}
	if known && target.Published.Before(current.Published) {
		r.TagFrom = current.ID
	}
	return r, nil
}

package prototype

import (
	"slices"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// An Original is what a model was before it came to use the pool's prototypes.
type Original struct {
	Image      fleet.ImageReference `json:"image"`
	CustomData string               `json:"customData,omitempty"` // SHA-256 of the model's, which the Vault has; "" if not known
	Extensions []OriginalExtension  `json:"extensions,omitempty"`
	At         time.Time            `json:"at"` // when it was recorded
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
			x.PublicSHA256 = SHA256(text)
		}
		i := slices.IndexFunc(before, func(old OriginalExtension) bool {
			return strings.EqualFold(old.Name, x.Name) && old.Handler() == x.Handler() && old.PublicSHA256 == x.PublicSHA256 && old.ForceUpdateTag == x.ForceUpdateTag
		})
		if e.KeyVault != nil {
			x.ProtectedSHA256 = NoSettings
		} else if i >= 0 {
			x.ProtectedSHA256 = before[i].ProtectedSHA256
		}
		all = append(all, x)
	}
	return all
}

// A Return is what a rollback comes down to.
type Return struct {
	From        fleet.ResourceID `json:"from,omitempty"` // version that the model uses
	To          fleet.ResourceID `json:"to,omitempty"`   // "" with ToOriginal
	ToOriginal  bool             `json:"toOriginal,omitempty"`
	TagFrom     fleet.ResourceID `json:"tagFrom,omitempty"` // to tag as rolled back; "" if the model goes forward
	Untag       bool             `json:"untag,omitempty"`   // To was rolled back earlier, and is wanted again
	NothingToDo bool             `json:"-"`                 // the model uses it already, and its tag is right
}

const (
	// Previous asks for the version before the model's, by publishing date; if no
	// such version exists, for ToOriginal.
	Previous = "previous"
	// ToOriginal asks for what the model was before its first capture.
	ToOriginal = "original"
)

// ReturnTo decides what a rollback to a version's name, Previous or ToOriginal comes
// down to, or why it cannot be done. original is nil where it was not recorded.
func ReturnTo(versions []fleet.ImageVersion, pool fleet.Pool, original *Original, to string) (r Return, problems Problems) {
	current, known := VersionOf(versions, pool.Model.Image, pool.Location)
	previous := to == "" || to == Previous
	var target *fleet.ImageVersion
	for _, v := range NewestFirst(versions) {
		older := !known || v.Published.Before(current.Published)
		if v.Name == to || previous && older && v.ProvisioningState == Succeeded && !RolledBack(v) && !v.ID.Equal(current.ID) {
			target = &v
			break
		}
	}
	uses := original != nil && original.Image.Same(pool.Model.Image)
	refuse := func(code, what, wayOut string) {
		problems.Refuse(true, code, string(DefinitionOf(pool.ID)), what, wayOut)
	}
	switch {
	case original != nil && (to == ToOriginal || previous && target == nil && !uses):
		return Return{From: current.ID, ToOriginal: true, TagFrom: current.ID, NothingToDo: uses}, nil
	case to == ToOriginal:
		refuse("NoOriginal", "what the model was before its first capture is not recorded: an earlier release captured it first",
			"set its image by az vmss update, or name a version by --to")
	case target == nil && previous && uses:
		refuse("NoPrevious", "the model is as it was before the first capture", "see ortet status for the versions, and name one by --to")
	case target == nil && previous:
		refuse("NoPrevious", "no earlier version is kept, and no first capture is recorded", "see ortet status for the versions, and name one by --to")
	case target == nil:
		refuse("NoVersion", "version "+to+" does not exist", "see ortet status for the versions")
	case target.ProvisioningState != Succeeded:
		refuse("VersionNotReady", "version "+target.Name+" is "+target.ProvisioningState, "name one that is Succeeded")
	default:
		r = Return{From: current.ID, To: target.ID, Untag: RolledBack(*target)}
		if uses := target.ID.Equal(pool.Model.Image.ID); uses {
			r.NothingToDo = !r.Untag
		} else if known && target.Published.Before(current.Published) {
			r.TagFrom = current.ID
		}
	}
	return r, problems
}

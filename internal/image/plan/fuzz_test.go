package plan

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/fleet"
)

// FuzzNames asserts that whatever a node's provider id says, if it is taken for
// one, all that a capture makes has names that Azure and Kubernetes take, lies
// in the pool's resource group, and is its own.
func FuzzNames(f *testing.F) {
	const begin = "azure:///subscriptions/s/resourceGroups/"
	const set = "/providers/Microsoft.Compute/virtualMachineScaleSets/"
	for _, pool := range []string{"p", "Pool-1", strings.Repeat("p", 59), strings.Repeat("p", 64), strings.Repeat("ä", 45), "-", "1.2_3",
		"(a)"} {
		for _, group := range []string{"g", "My-Group_(1)", strings.Repeat("g", 90), strings.Repeat("ü", 45), "グループ"} {
			f.Add(begin + group + set + pool + "/virtualMachines/0")
		}
	}
	gallery := regexp.MustCompile(`^[A-Za-z0-9_.]{1,80}$`)
	pod := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	f.Fuzz(func(t *testing.T, providerID string) {
		id, err := fleet.ParseProviderID(providerID)
		if err != nil {
			if !fleet.Is(err, fleet.KindInvalid) {
				t.Errorf("of kind %q", fleet.KindOf(err))
			}
			return
		}
		pool := id.Parent()
		now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
		n := NamesOf(pool, VersionName(now, true))
		within := string(pool.Group()) + "/providers/Microsoft.Compute/"
		for _, id := range []fleet.ResourceID{n.Gallery, n.Definition, n.Version, n.Snapshot, n.WorkDisk, n.Generalized} {
			rest, ok := strings.CutPrefix(string(id), within)
			if !ok {
				t.Errorf("%s is not in the pool's group", id)
			}
			for _, s := range strings.Split(rest, "/") {
				if len(s) > maxName || !fleet.ValidName(s) {
					t.Errorf("%s: %q is no name", id, s)
				}
			}
		}
		if !gallery.MatchString(n.Gallery.Name()) {
			t.Errorf("gallery %q", n.Gallery.Name())
		}
		if job := JobName(pool, CaptureName(now)); !pod.MatchString(job) || !strings.HasSuffix(job, "-"+CaptureName(now)) {
			t.Errorf("pod %q", job)
		}
		// A pool whose name begins alike has names of its own.
		other := NamesOf(pool+"2", "v")
		if fleet.ValidName(other.Definition.Name()) && utf8.ValidString(string(pool)) &&
			(n.Snapshot.Equal(other.Snapshot) || n.WorkDisk.Equal(other.WorkDisk) || n.Generalized.Equal(other.Generalized) ||
				n.Definition.Equal(other.Definition)) {
			t.Errorf("%s and %s2 share names", pool, pool)
		}
	})
}

// FuzzVersions decides over any versions that a gallery may list: what goes is
// never what is referred to, in the making, blocked, somebody else's, the one in
// use, or the last to go back to; and what is gone back to was made and not left.
func FuzzVersions(f *testing.F) {
	f.Add("2026.11.19 2026.11.20 2026.11.21", []byte{0, 0, 0}, uint8(2), 2, "previous")
	f.Add("1.0.0 1.0.99999999999999999999 x..y 2.0.0 2.0.0", []byte{1, 8, 3, 200, 17}, uint8(0), 0, "x..y")
	f.Add("2026.11.21 2026.1121.090000 2027.01.01 2027.01.02", []byte{4, 0, 2, 64}, uint8(3), -1, "")
	f.Add("", []byte{}, uint8(9), 3, "previous")
	const pool = fleet.ResourceID("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p")
	definition := DefinitionOf(pool)
	f.Fuzz(func(t *testing.T, names string, bits []byte, current uint8, history int, to string) {
		states := []string{Succeeded, Succeeded, Succeeded, Succeeded, Failed, "Creating", Deleting, ""}
		var versions []fleet.ImageVersion
		var uses []fleet.ImageUse
		seen := map[string]bool{}
		for i, name := range strings.Fields(names) {
			if len(versions) == 20 || seen[strings.ToLower(name)] {
				continue
			}
			seen[strings.ToLower(name)] = true
			b := byte(0)
			if i < len(bits) {
				b = bits[i]
			}
			v := fleet.ImageVersion{ID: definition.Child("versions", name), Name: name, ProvisioningState: states[b&7], Tags: map[string]string{}}
			v.Published = time.Unix(int64(b>>5)*1000, 0)
			v.DeletionBlocked = b%11 == 10
			if b&8 == 0 {
				v.Tags[fleet.TagBuiltFrom] = "n"
			}
			if b%13 == 12 {
				v.Tags[fleet.TagRolledBack] = name
			}
			if b%7 == 6 {
				uses = append(uses, fleet.ImageUse{Image: fleet.ResourceID(strings.ToUpper(string(v.ID))), By: pool})
			}
			versions = append(versions, v)
		}
		inUse := definition.Child("versions", "none")
		if int(current) < len(versions) {
			inUse = versions[current].ID
		}
		obsolete, kept := Prune(versions, uses, inUse, history, noon)
		goes := map[string]bool{}
		for _, v := range obsolete {
			goes[v.Name] = true
			if v.ID.Equal(inUse) || !Ours(v.Tags) || v.DeletionBlocked || v.ProvisioningState != Succeeded && v.ProvisioningState != Failed {
				t.Errorf("%+v goes", v)
			}
			for _, u := range uses {
				if u.Image.Equal(v.ID) {
					t.Errorf("%s goes, which %s refers to", v.Name, u.By)
				}
			}
		}
		// The one in use is made by now, whatever this list says: pruning is for then.
		good, left := 1, 1
		for _, v := range versions {
			if !v.ID.Equal(inUse) && v.ProvisioningState == Succeeded && Ours(v.Tags) && !RolledBack(v) {
				good++
				if !goes[v.Name] {
					left++
				}
			}
		}
		if left < min(good, 2) {
			t.Errorf("%d good versions of %d are left", left, good)
		}
		if len(obsolete)+len(kept) > len(versions) {
			t.Errorf("%d go and %d are kept, of %d", len(obsolete), len(kept), len(versions))
		}

		p := fleet.Pool{ID: pool, Model: fleet.Model{Image: fleet.ImageReference{ID: inUse}}}
		r, problems := ReturnTo(versions, p, nil, to)
		if len(problems) > 0 {
			if problems[0].What == "" || problems[0].WayOut == "" {
				t.Errorf("%+v", problems)
			}
			return
		}
		target, _ := FindVersion(versions, r.To)
		if target.ProvisioningState != Succeeded || (to == "" || to == Previous) && (RolledBack(target) || r.To.Equal(inUse)) ||
			r.TagFrom != "" && !r.TagFrom.Equal(inUse) {
			t.Errorf("goes back to %+v", r)
		}
	})
}

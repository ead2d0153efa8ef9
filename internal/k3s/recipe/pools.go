package recipe

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/k3s"
)

// Live is what a scale set has now.
type Live struct {
	Count   int
	Size    string
	Image   k3s.Image
	Applied string            // its TagApplied; settings that are missing there are unknown
	Tags    map[string]string // all: a template replaces them whole, and others set some
}

// keeps reports whether the live value of a setting stays: the file says of it what it
// said when it was last applied, so whatever differs was set since. So it is where
// that is not known: a file that changes again is heard, what was undone is lost.
func (l Live) keeps(setting, file string) bool {
	for _, f := range strings.Fields(l.Applied) {
		if before, ok := strings.CutPrefix(f, setting+"="); ok {
			return before == file
		}
	}
	return true
}

// A pool is one of cluster.yaml as the template has it: with what its scale set keeps.
type pool struct {
	k3s.Pool
	Tags map[string]string
}

// settlePools decides what pools that exist keep.
func (r *renderer) settlePools() error {
	r.Kept, r.Capacity = map[string][]string{}, object{}
	for _, p := range r.Spec.Pools {
		reference, err := image(p.Image, r.Spec.Image)
		if err != nil {
			return err
		}
		count := "auto"
		if p.Count != nil {
			count = strconv.Itoa(*p.Count)
		}
		sum := sha256.Sum256([]byte(strings.ToLower(reference))) // Azure's names and ids have any letter case
		digest := hex.EncodeToString(sum[:])[:16]
		out := pool{p, map[string]string{}}
		for name, value := range r.Live[p.Name].Tags {
			if strings.HasPrefix(value, "[") && strings.HasSuffix(value, "]") {
				value = "[" + value // or it would be an expression
			}
			out.Tags[name] = value
		}
		out.Tags[TagCluster], out.Tags[TagRole] = r.Metadata.Name, "pool"
		out.Tags[TagApplied] = fmt.Sprintf("count=%s size=%s image=%s", count, p.Size, digest)
		n := fileCount(p)
		if live, exists := r.Live[p.Name]; exists {
			if p.Count == nil || live.keeps("count", count) { // Azure scales a pool without count
				n = live.Count
			}
			if live.Size != "" && live.keeps("size", p.Size) && !strings.EqualFold(live.Size, p.Size) {
				out.Size = live.Size
				r.Kept[p.Name] = append(r.Kept[p.Name], "size "+live.Size)
			}
			now, err := image(live.Image, k3s.Image{})
			if err != nil {
				return err
			}
			if live.Image != (k3s.Image{}) && live.keeps("image", digest) && !strings.EqualFold(now, reference) {
				out.Image = live.Image
				r.Kept[p.Name] = append(r.Kept[p.Name], "image "+imageName(live.Image))
			}
		}
		r.Pools, r.Capacity[p.Name] = append(r.Pools, out), float64(n)
	}
	return nil
}

// imageName is an image for people: a gallery's definition and version, or a Marketplace
// image's four names.
func imageName(i k3s.Image) string {
	if at := strings.LastIndex(i.ID, "/images/"); at >= 0 {
		return strings.Replace(i.ID[at+len("/images/"):], "/versions/", "/", 1)
	}
	if i.ID != "" {
		return i.ID
	}
	return strings.Join([]string{i.Publisher, i.Offer, i.SKU, i.Version}, ":")
}

// fileCount is the number of instances that cluster.yaml gives a pool: count, or min of a
// pool that Azure scales.
func fileCount(p k3s.Pool) int {
	for _, n := range []*int{p.Count, p.Min} {
		if n != nil {
			return *n
		}
	}
	return 0
}

// FirstCapacity is the capacity of pools that do not exist yet.
func (r *renderer) FirstCapacity() object {
	all := object{}
	for _, p := range r.Spec.Pools {
		all[p.Name] = float64(fileCount(p))
	}
	return all
}

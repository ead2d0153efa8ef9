package recipe

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
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
	// Extensions of its model, as Azure has them: without their protected settings, which stay.
	Extensions []map[string]any
}

// keeps reports whether the live value of a setting stays: the file says of it what it
// said when it was last applied, so whatever differs was set since. So it is where
// that is not known: a file that changes again is heard, what was undone is lost.
func (l Live) keeps(setting, file string) bool {
	before := l.applied(setting)
	return before == "" || before == file
}

// ByPods reports whether cluster-autoscaler scales it.
func (l Live) ByPods() bool { return l.applied("count") == k3s.Pods }

// applied is a setting of TagApplied; "" is not known.
func (l Live) applied(setting string) string { return AppliedSetting(l.Applied, setting) }

// AppliedSetting is a setting in a value of TagApplied; "" is not known.
func AppliedSetting(tag, setting string) string {
	for _, f := range strings.Fields(tag) {
		if before, ok := strings.CutPrefix(f, setting+"="); ok {
			return before
		}
	}
	return ""
}

// CloudInit is the digest of a pool's cloud-init document in the tags of its scale set; the
// instances that are made from it have these too. "" is not known.
func CloudInit(tags map[string]string) string { return AppliedSetting(tags[TagApplied], "cloudinit") }

// wanted is the number of agents that a Spot pool has without evictions: the file's, or
// what ortet cluster scale gave it since. A pool of an earlier version, which has no
// record of its cloud-init, is left as it is.
func (l Live) wanted(file int) int {
	if n, err := strconv.Atoi(l.Tags[TagScaled]); err == nil {
		return n
	}
	if l.applied("cloudinit") == "" {
		return 0
	}
	return file
}

// A pool is one of cluster.yaml as the template has it: with what its scale set keeps.
type pool struct {
	k3s.Pool
	Tags       map[string]string
	extensions []object // of its scale set
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
		switch {
		case p.Count != nil:
			count = strconv.Itoa(*p.Count)
		case p.ScaleBy == k3s.Pods:
			count = k3s.Pods
		}
		deployed := count                                        // what the pool's tag is to say
		sum := sha256.Sum256([]byte(strings.ToLower(reference))) // Azure's names and ids have any letter case
		digest := hex.EncodeToString(sum[:])[:16]
		out := pool{p, map[string]string{}, r.Live[p.Name].Extensions}
		for name, value := range r.Live[p.Name].Tags {
			if strings.HasPrefix(value, "[") && strings.HasSuffix(value, "]") {
				value = "[" + value // or it would be an expression
			}
			out.Tags[name] = value
		}
		r.autoscalerTags(out)
		out.Tags[TagCluster], out.Tags[TagRole] = r.Metadata.Name, "pool"
		n := fileCount(p)
		if live, exists := r.Live[p.Name]; exists {
			switch {
			case p.Count == nil: // Azure or cluster-autoscaler scales it
				n = live.Count
			case live.keeps("count", count):
				if n = live.Count; p.Priority == k3s.Spot {
					n = max(n, live.wanted(*p.Count))
					r.Evicted[p.Name] = n - live.Count
				}
			case n < live.Count:
				r.Lowered[p.Name], n, deployed = n, live.Count, live.applied("count")
			default:
				delete(out.Tags, TagScaled)
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
		out.Tags[TagApplied] = fmt.Sprintf("count=%s size=%s image=%s cloudinit=%s", deployed, p.Size, digest, r.Documents.Applied.CloudInit[p.Name])
		r.Pools, r.Capacity[p.Name] = append(r.Pools, out), float64(n)
		if p.Count != nil {
			if lowered, less := r.Lowered[p.Name]; less {
				n = lowered
			}
			out.Count = &n
		}
		r.Documents.Pools[p.Name] = out.Pool
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

// Tags by which cluster-autoscaler finds a scale set and knows what Nodes it makes, in
// which "_" is for "/" and "~2" for "_" (its cloudprovider/azure/README.md).
const (
	tagAutoscaled = "cluster-autoscaler-enabled"
	tagLabel      = "k8s.io_cluster-autoscaler_node-template_label_"
	tagTaint      = "k8s.io_cluster-autoscaler_node-template_taint_"
)

// autoscalerTags sets the tags of a pool that pods scale. Of one that they scaled it deletes
// what is obsolete, and leaves the tags of somebody else's cluster-autoscaler.
func (r *renderer) autoscalerTags(p pool) {
	if r.Live[p.Name].ByPods() {
		maps.DeleteFunc(p.Tags, func(name, _ string) bool {
			return slices.Contains([]string{tagAutoscaled, "cluster-autoscaler-name", "min", "max"}, name) || strings.HasPrefix(name, tagLabel) || strings.HasPrefix(name, tagTaint)
		})
	}
	if p.ScaleBy != k3s.Pods {
		return
	}
	maps.Copy(p.Tags, map[string]string{tagAutoscaled: "true", "cluster-autoscaler-name": r.Metadata.Name, "min": strconv.Itoa(*p.Min), "max": strconv.Itoa(*p.Max)})
	name := strings.NewReplacer("_", "~2", "/", "_")
	for key, value := range p.Labels {
		p.Tags[tagLabel+name.Replace(key)] = value
	}
	for _, taint := range p.Taints {
		of, effect, _ := strings.Cut(taint, ":")
		key, value, _ := strings.Cut(of, "=")
		p.Tags[tagTaint+name.Replace(key)] = value + ":" + effect
	}
}

// fileCount is the number of instances that cluster.yaml gives a pool: count, or min of a
// pool that Azure or cluster-autoscaler scales.
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

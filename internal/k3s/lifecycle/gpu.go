package lifecycle

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s"
	"github.com/ortet/ortet/internal/k3s/recipe"
)

// otherGPUs are sizes whose capability GPUs counts none of NVIDIA: AMD's (Azure's pages on
// NVv4, NVads V710 v5, NGads V620, ND MI300X v5 and NMads MA35D), and FPGAs (NP).
var otherGPUs = regexp.MustCompile(`(?i)^standard_(ng|nm|np|nv\d+as_v4$|nv.*_v710_|nd.*_mi\d)`)

// noGPU says why pods get no NVIDIA GPU of a size, "" if they do.
func noGPU(size fleet.SizeInfo) string {
	switch {
	case size.GPUs == 0:
		return "has no GPU, which gpu needs"
	case otherGPUs.MatchString(size.Name):
		return "has no GPU of NVIDIA, which gpu needs"
	}
	return ""
}

// driverPage is what Azure's page "NVIDIA GPU Driver Extension for Linux" lists of
// distributions, by driver: which of the two the extension installs follows from the size.
var driverPage = map[string]struct{ lists, offers string }{
	"CUDA": {"Ubuntu 20.04 LTS and RHEL 7.9", `(?i)^canonical:.*\b20[_.]04|^redhat:rhel(-raw)?:7[_.]9`},
	"GRID": {"Ubuntu 22.04 and 24.04 LTS and RHEL 8.2", `(?i)^canonical:.*\b2[24][_.]04|^redhat:rhel(-raw)?:8[_.]2`},
}

// driverNotes name the pools whose size and image are not on that page.
func driverNotes(d *recipe.Documents) (notes []string) {
	for _, name := range sorted(d.Pools) {
		p := d.Pools[name]
		if p.GPU == nil || p.GPU.Driver != k3s.Extension {
			continue
		}
		driver := "CUDA"
		if strings.HasPrefix(strings.ToLower(p.Size), "standard_nv") {
			driver = "GRID"
		}
		page, i := driverPage[driver], p.Image
		image := strings.Join([]string{i.Publisher, i.Offer, i.SKU}, ":")
		says := "does not list " + image
		if i.ID != "" {
			says = "lists no images of galleries"
		} else if regexp.MustCompile(page.offers).MatchString(image) {
			continue
		}
		notes = append(notes, fmt.Sprintf("pool %s: for the %s driver of %s, "+
			"Azure's page on the NVIDIA GPU Driver Extension lists %s, and %s; "+
			"if the extension fails, use gpu: {driver: none} and the distribution's signed modules in packages",
			name, driver, p.Size, page.lists, says))
	}
	return notes
}

package azsim

import (
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim/deployments"
)

// The quotas of a region beside those of the families of sizes.
const (
	regionalQuota = "cores"
	spotQuota     = "lowPriorityCores"
)

// defaultQuota is more than any scale set needs.
const defaultQuota = 100_000

// vCPUs are numbers of vCPUs by the name of a quota.
type vCPUs map[string]int

// add counts n instances of a size, Spot ones in a quota of their own.
func (v vCPUs) add(n int, size string, spot bool) {
	z, _ := findSize(size)
	if spot {
		v[spotQuota] += n * int(z.cores)
		return
	}
	v[z.family] += n * int(z.cores)
	v[regionalQuota] += n * int(z.cores)
}

// newVCPUs are those of n new instances of a scale set.
func newVCPUs(n int, set *armcompute.VirtualMachineScaleSet) vCPUs {
	out := vCPUs{}
	for i := range n {
		out.add(1, sizeFor(set, i), isSpot(profileOf(set)))
	}
	return out
}

// quotaNames lists all quotas: the region's, and each family's.
func quotaNames() []string {
	out, seen := []string{regionalQuota, spotQuota}, map[string]bool{}
	for _, z := range vmSizes() {
		if !seen[z.family] {
			seen[z.family] = true
			out = append(out, z.family)
		}
	}
	return out
}

func (s *Server) quota(name string) int {
	if n, set := s.Quota[name]; set {
		return n
	}
	return defaultQuota
}

// usedIn counts the vCPUs of the instances in a region that have a host or wait for one.
// The caller holds the lock.
func (s *Server) usedIn(location string) vCPUs {
	out := vCPUs{}
	for _, e := range s.order {
		x, isInstance := e.extra.(*instance)
		if isInstance && s.locationOf(e) == normLocation(location) && x.power != powerDeallocated && (x.power != "" || x.failure == nil) {
			out.add(1, x.size, isSpot(x.profile))
		}
	}
	return out
}

// checkQuota refuses what needs more vCPUs than a quota of the region leaves. Code and text
// are those that users report; a deployment is refused by its validation with another code
// (fahclient-azure-vm issue 3).
func (c *call) checkQuota(location string, more vCPUs) error {
	used := c.s.usedIn(location)
	for _, name := range sortedKeys(more) {
		limit, n := c.s.quota(name), more[name]
		if n == 0 || used[name]+n <= limit {
			continue
		}
		title, code := name+" Cores", "OperationNotAllowed"
		switch name {
		case regionalQuota:
			title = "Total Regional Cores"
		case spotQuota:
			title = "LowPriorityCores"
		}
		if c.check != deployments.Perform {
			code = "QuotaExceeded"
		}
		return refuse(http.StatusConflict, code,
			"Operation could not be completed as it results in exceeding approved %s quota. Additional details - Deployment Model: "+
				"Resource Manager, Location: %s, Current Limit: %d, Current Usage: %d, Additional Required: %d, (Minimum) New Limit Required: %d. "+
				"Submit a request for Quota increase at https://aka.ms/ProdportalCRP by specifying parameters listed in the ‘Details’ section "+
				"for deployment to succeed. Please read more about quota limits at "+
				"https://docs.microsoft.com/en-us/azure/azure-supportability/per-vm-quota-requests",
			title, normLocation(location), limit, used[name], n, used[name]+n)
	}
	return nil
}

// listUsages lists the quotas of a region, and what is used of them.
func listUsages(c *call) (*reply, error) {
	if err := c.knownLocation(); err != nil {
		return nil, err
	}
	used, items := c.s.usedIn(c.id.name()), []any{}
	for _, name := range quotaNames() {
		title := map[string]string{regionalQuota: "Total Regional vCPUs", spotQuota: "Total Regional Low-priority vCPUs"}[name]
		if title == "" { // "standardDSv5Family"
			title = "Standard " + strings.TrimSuffix(name[len("standard"):], "Family") + " Family vCPUs"
		}
		items = append(items, map[string]any{
			"limit": c.s.quota(name), "currentValue": used[name], "unit": "Count", "name": map[string]any{"value": name, "localizedValue": title},
		})
	}
	return ok(map[string]any{"value": items}), nil
}

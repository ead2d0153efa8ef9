package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
)

// Quota says what n new machines of a pool take of the region's quotas of vCPUs, by their sizes and
// their families' usages in lower case, and whether there is room: of an instance mix, for machines of
// one of the sizes (inferred). What cannot be read is no reason to refuse: sizes and usages need rights
// on the subscription.
func Quota(pool fleet.Pool, n int64, sizes map[string]fleet.SizeInfo, usages map[string]fleet.Usage,
	unread error) (text string, fits bool) {
	var needs, used []string
	for _, name := range pool.NewSizes() {
		size := sizes[strings.ToLower(name)]
		if unread != nil || size.VCPUs == 0 {
			return "; whether the quota of vCPUs has room could not be read", true
		}
		quotas := []string{size.Family, "cores"}
		if pool.Spot {
			quotas = []string{"lowPriorityCores"}
		}
		room := true
		for _, quota := range quotas {
			if u, known := usages[strings.ToLower(quota)]; known {
				if text := fmt.Sprintf("%d of %d %s", u.Used, u.Limit, quota); !slices.Contains(used, text) {
					used = append(used, text)
				}
				room = room && u.Used+n*size.VCPUs <= u.Limit
			}
		}
		needs, fits = append(needs, fmt.Sprint(n*size.VCPUs)), fits || room
	}
	return fmt.Sprintf(", %s vCPUs; in use are %s", strings.Join(slices.Compact(needs), " or "), strings.Join(used, " and ")), fits
}

package azsim

import (
	"slices"
	"sort"
)

// A member is what balancing needs to know of an instance.
type member struct {
	id        int
	zone      string
	protected bool // from scale-in
}

// placeZones says in which zones n new instances go, so that the zones end as
// even as they can: each goes to the zone with the fewest, the first named among
// equals. It returns n empty zones for a scale set without zones.
func placeZones(zones []string, have []member, n int) []string {
	placed := make([]string, n)
	if len(zones) == 0 {
		return placed
	}
	count := make(map[string]int, len(zones))
	for _, m := range have {
		count[m.zone]++
	}
	for i := range placed {
		best := zones[0]
		for _, z := range zones[1:] {
			if count[z] < count[best] {
				best = z
			}
		}
		placed[i] = best
		count[best]++
	}
	return placed
}

// scaleInVictims chooses n instances to delete as the scale-in policy does:
// zones are balanced first; within a zone, Default and NewestVM take the newest
// (the highest id) and OldestVM the oldest. Protected instances are never
// chosen, so fewer than n may come back.
func scaleInVictims(have []member, n int, rules []string) []int {
	oldest := slices.Contains(rules, "OldestVM")
	byZone := map[string][]member{}
	count := map[string]int{}
	for _, m := range have {
		count[m.zone]++
		if !m.protected {
			byZone[m.zone] = append(byZone[m.zone], m)
		}
	}
	zones := make([]string, 0, len(byZone))
	for z, ms := range byZone {
		zones = append(zones, z)
		sort.Slice(ms, func(i, j int) bool {
			if oldest {
				return ms[i].id < ms[j].id
			}
			return ms[i].id > ms[j].id
		})
	}
	sort.Strings(zones)

	var victims []int
	for len(victims) < n {
		fullest := ""
		found := false
		for _, z := range zones {
			if len(byZone[z]) > 0 && (!found || count[z] > count[fullest]) {
				fullest, found = z, true
			}
		}
		if !found {
			break
		}
		victims = append(victims, byZone[fullest][0].id)
		byZone[fullest] = byZone[fullest][1:]
		count[fullest]--
	}
	return victims
}

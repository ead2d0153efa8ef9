package azsim

import "strconv"

func autoscaleType() *resourceType {
	return storedType("Microsoft.Insights/autoscaleSettings", []string{"2015-04-01", "2022-10-01"}, &storedRules{tracked: true, check: checkAutoscale})
}

// checkAutoscale wants min ≤ default ≤ max, as Azure does.
func checkAutoscale(_ *call, d *draft) error {
	profiles, _ := d.properties()["profiles"].([]any)
	if len(profiles) == 0 {
		return badRequest("BadRequest", "The autoscale setting '%s' has no profiles: at least one is needed.", d.id.name())
	}
	for _, v := range profiles {
		stringMembers(at(v, "capacity"), "minimum", "default", "maximum")
		var n [3]int
		for i, m := range []string{"minimum", "default", "maximum"} {
			var err error
			if n[i], err = strconv.Atoi(text(v, "capacity", m)); err != nil {
				return badRequest("BadRequest", "The value of capacity.%s in profile '%s' must be a string that holds a number.", m, text(v, "name"))
			}
		}
		if n[0] > n[1] || n[1] > n[2] {
			return badRequest("BadRequest", "The capacity of profile '%s' is invalid: want minimum (%d) ≤ default (%d) ≤ maximum (%d).", text(v, "name"), n[0], n[1], n[2])
		}
	}
	return nil
}

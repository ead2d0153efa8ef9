package recorded

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const mostFrequent = 20

// table writes counts by type, and by rule that was broken.
func table(sessions int, hash string, results []*result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d sessions, content %s, %d requests compared.\n", sessions, hash, len(results))
	fmt.Fprintf(&b, "Each number twice: with the rules for ids, times, GUIDs, generated names and addresses only, and with all rules.\n\n")
	b.WriteString(shares(results))
	header := fmt.Sprintf("%-84s %8s", "", "requests")
	for c := range categories {
		header += fmt.Sprintf("  %11s", c)
	}
	b.WriteString(header + "\n")
	for g := usedGroup; g <= unwantedGroup; g++ {
		var of []*result
		byType := map[string][]*result{}
		for _, r := range results {
			if groupOf(r.typ) == g {
				of, byType[r.typ] = append(of, r), append(byType[r.typ], r)
			}
		}
		b.WriteString(row(strings.ToUpper(g.String()), of))
		for _, typ := range sortedKeys(byType) {
			b.WriteString(row("  "+typ, byType[typ]))
		}
	}
	for _, of := range []struct {
		title  string
		groups []group
	}{{"types that Ortet uses", []group{usedGroup}}, {"wanted types", []group{wantedGroup}}} {
		fmt.Fprintf(&b, "\nMost frequent differences, %s (in how many requests: with the former rules only, with all rules)\n", of.title)
		b.WriteString(frequent(results, of.groups))
	}
	return b.String()
}

// shares are the two figures that azsim is judged by.
func shares(results []*result) string {
	var counted, strict, all, refusals, refusedToo int
	for _, r := range results {
		if r.status >= http.StatusBadRequest && r.category != consequence {
			refusals++
			if r.category == same {
				refusedToo++
			}
		}
		if groupOf(r.typ) != usedGroup || r.category == consequence {
			continue
		}
		counted++
		if r.strict == same {
			strict++
		}
		if r.category == same {
			all++
		}
	}
	percent := func(n int) float64 { return 100 * float64(n) / float64(max(counted, 1)) }
	return fmt.Sprintf("Used by Ortet, without consequences: %d requests, %.1f %% and %.1f %% the same.\n"+
		"Refused by Azure: %d requests, of these with the same status and error.code: %d.\n\n",
		counted, percent(strict), percent(all), refusals, refusedToo)
}

func row(title string, of []*result) string {
	var strict, all [categories]int
	for _, r := range of {
		strict[r.strict]++
		all[r.category]++
	}
	line := fmt.Sprintf("%-84s %8d", title, len(of))
	for c := range categories {
		line += fmt.Sprintf("  %5d %5d", strict[c], all[c])
	}
	return line + "\n"
}

func frequent(results []*result, of []group) string {
	type count struct {
		rule        string
		strict, all int
	}
	counts := map[string]*count{}
	for _, r := range results {
		if r.category == consequence || !slices.Contains(of, groupOf(r.typ)) {
			continue
		}
		seen := map[string]bool{}
		for _, d := range r.differences {
			key := r.typ + ": " + d.rule
			n := counts[key]
			if n == nil {
				n = &count{rule: key}
				counts[key] = n
			}
			if !seen[key] {
				n.strict++
			}
			if d.excused == "" && !seen[key+"\n"] {
				n.all++
				seen[key+"\n"] = true
			}
			seen[key] = true
		}
	}
	var list []*count
	for _, key := range sortedKeys(counts) {
		list = append(list, counts[key])
	}
	slices.SortStableFunc(list, func(a, b *count) int { return cmp.Compare(b.strict, a.strict) })
	var b strings.Builder
	for _, n := range list[:min(mostFrequent, len(list))] {
		fmt.Fprintf(&b, "%6d %5d  %s\n", n.strict, n.all, n.rule)
	}
	if more := list[min(mostFrequent, len(list)):]; len(more) > 0 {
		var strict, all int
		for _, n := range more {
			strict, all = strict+n.strict, all+n.all
		}
		fmt.Fprintf(&b, "%6d %5d  %d other differences\n", strict, all, len(more))
	}
	return b.String()
}

// examples lists all kinds of differences with their number, and the first of each.
func examples(results []*result) string {
	counts, first := map[string]int{}, map[string]string{}
	for _, r := range results {
		for _, d := range r.differences {
			key := fmt.Sprintf("%s %s: %s", r.category, r.typ, d.rule)
			if d.excused != "" {
				key += " (no difference: " + d.excused + ")"
			}
			if counts[key]++; counts[key] == 1 {
				first[key] = fmt.Sprintf("%s: %s\n           %s %s", r.session, r.request, d.detail, r.detail)
			}
		}
	}
	keys := sortedKeys(counts)
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	var b strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&b, "%6d %s\n       %s\n", counts[key], key, first[key])
	}
	return b.String()
}

func TestTable(t *testing.T) {
	excused := difference{rule: "properties.a missing", detail: "private", excused: "any reason"}
	results := []*result{
		{typ: machineType, status: http.StatusOK},
		{typ: machineType, status: http.StatusOK, strict: body, differences: []difference{excused, excused}},
		{typ: machineType, status: http.StatusOK, strict: refused, category: refused, detail: "private",
			differences: []difference{{rule: "refused with 400 X"}}},
		{typ: machineType, status: http.StatusNotFound},
		{typ: deploymentType, status: http.StatusCreated, strict: consequence, category: consequence},
		{typ: "microsoft.any/unwanted", status: http.StatusOK, strict: refused, category: refused},
	}
	got := table(1, "hash", results)
	for _, want := range []string{
		"1 sessions, content hash, 6 requests compared.",
		"Used by Ortet, without consequences: 4 requests, 50.0 % and 75.0 % the same.",
		"Refused by Azure: 1 requests, of these with the same status and error.code: 1.",
		"Microsoft.Compute/virtualMachines 4 2 3 1 0 0 0 1 1 0 0\n",
		"Microsoft.Resources/deployments 1 0 0 0 0 0 0 0 0 1 1\n",
		"1 0 Microsoft.Compute/virtualMachines: properties.a missing\n",
		"1 1 Microsoft.Compute/virtualMachines: refused with 400 X\n",
	} {
		if !strings.Contains(regexp.MustCompile(" +").ReplaceAllString(got, " "), want) {
			t.Errorf("the table has no %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "private") {
		t.Errorf("the table has recorded values:\n%s", got)
	}
}

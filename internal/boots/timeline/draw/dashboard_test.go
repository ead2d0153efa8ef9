package draw

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// exported are the metrics that the docs' tables list, with their labels: that
// is the one list, by which who exports them is tested too.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	line := regexp.MustCompile("(?m)^\\| `(ortet_[a-z_]+)` \\| ([a-z, ]*) \\|")
	out := map[string][]string{}
	for _, file := range []string{"verdict.md", "timeline.md", "scalesetpool.md"} { // what the second says of one that both have counts
		text, err := os.ReadFile("../../../../docs/reference/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			out[m[1]] = strings.Split(m[2], ", ")
		}
	}
	return out
}

// What the dashboard asks for is exported, with the labels by which it asks.
func TestDashboard(t *testing.T) {
	metrics := exported(t)
	for _, name := range []string{"ortet_boot_total_seconds", "ortet_boot_stage_seconds", "ortet_boot_wait_seconds", "ortet_boot_verdicts_total", "ortet_instances", "ortet_pool_stalled"} {
		if metrics[name] == nil {
			t.Errorf("the docs do not list %s: there are %v", name, metrics)
		}
	}
	text, err := os.ReadFile("../../../../deploy/grafana/boot.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		UID        string
		Templating struct {
			List []struct{ Name, Definition string }
		}
		Panels []struct {
			ID              int
			Title, Type     string
			GridPos         struct{ X, Y, W, H int }
			Targets         []struct{ Expr string }
			Transformations []json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	variables := []string{"__rate_interval", "__range"}
	var expressions []string
	for _, v := range board.Templating.List {
		variables = append(variables, v.Name)
		expressions = append(expressions, v.Definition)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || (p.Type != "row" && len(p.Targets) == 0) {
			t.Errorf("panel %d, %q: it shows nothing, or is there twice", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x > 23 {
					t.Fatalf("%q lies on %q", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	var (
		name     = regexp.MustCompile(`ortet_[a-z_]+`)
		label    = regexp.MustCompile(`([a-z_]+)=~?"`)
		by       = regexp.MustCompile(`by \(([a-z_, ]+)\)`)
		variable = regexp.MustCompile(`\$\{?([a-z_]+)`)
		used     = map[string]bool{}
	)
	for _, e := range expressions {
		var labels []string
		for _, m := range name.FindAllString(e, -1) {
			base := m
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if cut, ok := strings.CutSuffix(m, suffix); ok {
					base = cut
				}
			}
			if metrics[base] == nil {
				t.Errorf("nobody exports %s: %s", m, e)
			}
			used[base] = true
			labels = append(labels, metrics[base]...)
			if strings.HasSuffix(m, "_bucket") {
				labels = append(labels, "le")
			}
		}
		for _, m := range label.FindAllStringSubmatch(e, -1) {
			if !slices.Contains(labels, m[1]) {
				t.Errorf("none of its metrics has the label %s: %s", m[1], e)
			}
		}
		for _, m := range by.FindAllStringSubmatch(e, -1) {
			for l := range strings.SplitSeq(m[1], ", ") {
				if !slices.Contains(labels, l) {
					t.Errorf("none of its metrics has the label %s: %s", l, e)
				}
			}
		}
		for _, m := range variable.FindAllStringSubmatch(e, -1) {
			if !slices.Contains(variables, m[1]) {
				t.Errorf("there is no variable %s: %s", m[1], e)
			}
		}
		if strings.Count(e, "(") != strings.Count(e, ")") || strings.Count(e, "{") != strings.Count(e, "}") {
			t.Errorf("its brackets do not match: %s", e)
		}
	}
	for _, m := range []string{"ortet_boot_total_seconds", "ortet_boot_stage_seconds", "ortet_boot_wait_seconds"} {
		if !used[m] {
			t.Errorf("%s is not shown", m)
		}
	}
}

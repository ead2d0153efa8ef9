package operator_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ortet/ortet/internal/operator"
)

// registered are the metrics of the operator, with their labels.
type registered map[string]string

// Register implements prometheus.Registerer.
func (r registered) Register(c prometheus.Collector) error {
	all := make(chan *prometheus.Desc, 8)
	c.Describe(all)
	close(all)
	for d := range all {
		m := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`).FindStringSubmatch(d.String())
		r[m[1]] = strings.ReplaceAll(m[2], ",", ", ")
	}
	return nil
}

func (r registered) MustRegister(...prometheus.Collector) {}
func (r registered) Unregister(prometheus.Collector) bool { return false }

// The page lists the metrics that are registered, with their labels. Alerts ask for these by these labels;
// a test of the dashboard goes by the page too.
func TestMetricsAreDocumentedAndAlerted(t *testing.T) {
	all := registered{}
	if _, err := operator.NewMetrics(all); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page := read("docs/reference/scalesetpool.md")
	listed := registered{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(ortet_[a-z_]+)` \\| ([a-z, ]*) \\|").FindAllStringSubmatch(page, -1) {
		listed[m[1]] = m[2]
	}
	for name, labels := range all {
		if listed[name] != labels {
			t.Errorf("%s has the labels %q, and the page has %q", name, labels, listed[name])
		}
	}
	if len(listed) != len(all) {
		t.Errorf("the page lists %v, and %v are registered", listed, all)
	}
	alerts := 0
	rule := regexp.MustCompile(`(?s)- alert: (\w+)\n\s+expr: ([^\n]+)\n(.*?description: [^\n]+)`)
	for _, m := range rule.FindAllStringSubmatch(read("charts/ortet/templates/operator-monitoring.yaml"), -1) {
		name, expr := m[1], m[2]
		if alerts++; !strings.Contains(page, "| `"+name+"` |") {
			t.Errorf("the page does not list %s", name)
		}
		if strings.Count(expr, "(") != strings.Count(expr, ")") {
			t.Errorf("%s: its brackets do not match: %s", name, expr)
		}
		var labels []string
		for _, used := range regexp.MustCompile(`ortet_[a-z_]+`).FindAllString(expr, -1) {
			if _, has := all[used]; !has {
				t.Errorf("%s: nobody exports %s", name, used)
			}
			labels = append(labels, strings.Split(all[used], ", ")...)
		}
		for _, by := range regexp.MustCompile(`by \((\w+)\)`).FindAllStringSubmatch(expr, -1) {
			if !slices.Contains(labels, by[1]) {
				t.Errorf("%s: none of its metrics has the label %s", name, by[1])
			}
		}
		if len(labels) == 0 && !strings.Contains(expr, "up{") {
			t.Errorf("%s asks for nothing: %s", name, expr)
		}
	}
	if alerts != 7 {
		t.Errorf("%d alerts were read", alerts)
	}
}

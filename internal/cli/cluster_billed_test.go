package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
)

// A bill fits 80 columns, with and without prices.
func TestBillFits(t *testing.T) {
	b := lifecycle.Bill{Charges: []lifecycle.Charge{
		{What: "Standard_" + strings.Repeat("long", 20) + ", Spot", Number: 1000, When: lifecycle.BilledUp},
		{What: "OS disk, StandardSSD_LRS, 4095 GB", Number: 1000, When: lifecycle.BilledStopped},
		{What: "file shares, by what they hold", Number: 3, When: lifecycle.BilledAlways},
	}}
	var out strings.Builder
	writeClusterPlan(&out, &lifecycle.Plan{Billed: b})
	plain := out.String()
	if !strings.Contains(plain, "1000    up, stopped\n") || strings.Contains(plain, "month") {
		t.Error(plain)
	}
	for i := range b.Charges[:2] {
		b.Charges[i].Price, b.Charges[i].Per = 99.1234, "month"
	}
	at := time.Unix(0, 0)
	b.At, b.Currency, b.Up, b.Stopped, b.Down = &at, "USD", 198246.8, 99123.4, 0
	writeClusterPlan(&out, &lifecycle.Plan{Billed: b})
	if got := strings.TrimPrefix(out.String(), plain); !strings.Contains(got, "99.1234/month  99123.40\n") ||
		!strings.Contains(strings.Join(strings.Fields(got), " "), "A month: 198246.80 USD up, 99123.40 stopped, 0.00 after down. List prices of 1970-01-01") {
		t.Error(got)
	}
	for l := range strings.Lines(out.String()) {
		if n := len([]rune(strings.TrimRight(l, "\n"))); n > resultWidth {
			t.Errorf("%d columns: %s", n, l)
		}
	}
}

// A price list that does not answer is a note.
func TestPricesThatAreMissingAreANote(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	b := lifecycle.Bill{Charges: []lifecycle.Charge{{What: "x", Number: 1, When: lifecycle.BilledUp}}}
	for want, p := range map[string]*prices{"": {from: server.URL}, "cannot read prices: the list has none for westeurope": {wanted: true, from: server.URL}} {
		var notes []string
		p.price(t.Context(), "westeurope", &b, &notes)
		if got := strings.Join(notes, "\n"); got != want || b.At != nil {
			t.Errorf("notes are %q, want %q", got, want)
		}
	}
	server.Close()
	for _, from := range []string{"prices.example", "ftp://prices.example/", "https://prices.example/?a=b", "https://"} {
		for _, command := range []string{"plan", "status"} {
			if code, _, err := run(t, "cluster", command, "--prices", "--prices-from", from); code != ExitUsage || !strings.Contains(err, "want https://") {
				t.Errorf("%s %s: exit code %d: %s", command, from, code, err)
			}
		}
	}
}

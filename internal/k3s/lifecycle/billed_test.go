package lifecycle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
)

// bill is a bill in short.
func bill(b lifecycle.Bill) (lines []string) {
	for _, c := range b.Charges {
		lines = append(lines, fmt.Sprintf("%d %s: %s", c.Number, c.What, c.When))
	}
	return lines
}

func (x *site) bills(when, text string, plan, status []string) {
	x.Helper()
	p, err := x.manager(text).Plan(x.ctx)
	if err != nil {
		x.Fatal(err)
	}
	if got := bill(p.Billed); !slices.Equal(got, plan) {
		x.Errorf("%s, plan: billed is\n%s, want\n%s", when, strings.Join(got, "\n"), strings.Join(plan, "\n"))
	}
	s, err := x.manager(text).Status(x.ctx)
	if err != nil {
		x.Fatal(err)
	}
	if got := bill(s.Billed); !slices.Equal(got, status) {
		x.Errorf("%s, status: billed is\n%s, want\n%s", when, strings.Join(got, "\n"), strings.Join(status, "\n"))
	}
}

// What is billed of a new, a changed, a stopped and a torn-down cluster.
func TestBilled(t *testing.T) {
	play(t, nil, func(x *site) {
		storage := []string{"1 state disk, StandardSSD_LRS, 8 GB: always", "3 file shares, by what they hold: always"}
		all := slices.Concat([]string{"1 Standard_D2s_v5, Regular: up", "2 Standard_D2s_v5, Spot: up", "3 OS disk, StandardSSD_LRS, 32 GB: up, stopped",
			"1 NAT gateway: up, stopped", "2 public address: up, stopped"}, storage)
		x.bills("new", file, all, nil)
		go x.boot()
		x.up(file)
		x.bills("up", file, all, all)
		changed := strings.Replace(strings.Replace(file, "count: 2}", "count: 3}, {name: more, count: 1, priority: Regular, size: Standard_D4s_v5, diskGB: 64, diskType: Premium_LRS}", 1),
			"  pools:", "  server: {size: Standard_D4s_v5, stateGB: 16}\n  pools:", 1)
		x.bills("changed", changed, []string{"2 Standard_D4s_v5, Regular: up", "3 Standard_D2s_v5, Spot: up", "4 OS disk, StandardSSD_LRS, 32 GB: up, stopped",
			"1 OS disk, Premium_LRS, 64 GB: up, stopped", "1 NAT gateway: up, stopped", "2 public address: up, stopped",
			"1 state disk, StandardSSD_LRS, 16 GB: always", "3 file shares, by what they hold: always"}, all)
		x.send(http.MethodPost, pool+"/deallocate", "2024-07-01", nil)
		x.send(http.MethodPost, serverVM+"/deallocate", "2024-07-01", nil)
		x.bills("stopped", file, all, all)
		if _, err := x.manager(file).Backup(x.ctx, "", ""); err != nil {
			x.Fatal(err)
		}
		if _, err := x.manager(file).Down(x.ctx, []string{lifecycle.RoleCompute}); err != nil {
			x.Fatal(err)
		}
		storage = []string{storage[0], "1 backups, by what they hold: always", storage[1]}
		x.bills("down", file, append(slices.Clone(all[:5]), storage...), storage)
	})
}

// priceList is a stand-in of Azure's, which has entries like its.
func priceList(w http.ResponseWriter, r *http.Request) {
	entry := func(product, sku, meter, unit string, price float64) object {
		return object{"currencyCode": "USD", "retailPrice": price, "unitOfMeasure": unit, "productName": product, "skuName": sku, "meterName": meter}
	}
	where := func(region, rest string) string {
		return "armRegionName eq '" + region + "' and priceType eq 'Consumption' and " + rest
	}
	items := map[string][]object{
		where("westeurope", "serviceName eq 'Virtual Machines' and armSkuName eq 'Standard_D2s_v5'"): {
			entry("Virtual Machines Dsv5 Series Windows", "D2s v5", "D2s v5", "1 Hour", 9), entry("Virtual Machines Dsv5 Series", "D2s v5 Low Priority", "D2s v5 Low Priority", "1 Hour", 8),
			entry("Virtual Machines Dsv5 Series", "D2s v5 Spot", "D2s v5 Spot", "1 Hour", 0.02), entry("Virtual Machines Dsv5 Series", "D2s v5", "D2s v5", "1 Hour", 0.1)},
		where("westeurope", "serviceName eq 'Storage' and meterName eq 'E4 LRS Disk'"):                            {entry("Standard SSD Managed Disks", "E4 LRS", "E4 LRS Disk", "1/Month", 2.4)},
		where("westeurope", "serviceName eq 'Storage' and meterName eq 'E2 LRS Disk'"):                            {entry("Standard SSD Managed Disks", "E2 LRS", "E2 LRS Disk", "1/Month", 0.6)},
		where("westeurope", "serviceName eq 'Virtual Network' and meterName eq 'Standard IPv4 Static Public IP'"): {entry("IP Addresses", "Standard", "Standard IPv4 Static Public IP", "1 Hour", 0.005)},
		where("Global", "serviceName eq 'NAT Gateway' and meterName eq 'Standard Gateway'"):                       {entry("NAT Gateway", "Standard", "Standard Gateway", "1 Hour", 0.045)},
	}[r.URL.Query().Get("$filter")]
	_ = json.NewEncoder(w).Encode(object{"BillingCurrency": "USD", "Items": append([]object{}, items...), "NextPageLink": nil})
}

func TestPrices(t *testing.T) {
	var b lifecycle.Bill
	play(t, nil, func(x *site) {
		p, err := x.manager(file).Plan(x.ctx)
		if err != nil {
			x.Fatal(err)
		}
		b = p.Billed
	})
	answer, requests := priceList, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { requests++; answer(w, r) }))
	defer server.Close()
	list := &lifecycle.PriceList{URL: server.URL + "/api", Transport: server.Client().Transport, Location: "westeurope"}
	for range 2 { // as status --watch does
		got := lifecycle.Bill{Charges: slices.Clone(b.Charges)}
		if err := list.Price(t.Context(), &got, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		// Server 73, agents 29.2, OS disks 7.2, gateway 32.85, addresses 7.3, state 0.6.
		if sums := fmt.Sprintf("%s %.2f %.2f %.2f", got.Currency, got.Up, got.Stopped, got.Down); sums != "USD 150.15 47.95 0.60" {
			t.Errorf("a month is %s: %+v", sums, got.Charges)
		}
		if requests != 7 { // the gateway's twice
			t.Errorf("%d requests", requests)
		}
	}

	text := func(body string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		"HTML":       {text("<html>"), "answer is no price list"},
		"other JSON": {text(`{"error": 1}`), "answer is no price list"},
		"too large":  {text(strings.Repeat(" ", 1<<20) + `{"Items": []}`), "answer is no price list"},
		"nothing":    {text(`{"Items": []}`), "has none for westeurope"},
		"negative":   {text(`{"Items": [{"currencyCode": "USD", "retailPrice": -1, "unitOfMeasure": "1 Hour"}]}`), "has none for westeurope"},
		"a currency": {text(`{"Items": [{"currencyCode": "\u001b[2J", "retailPrice": 1, "unitOfMeasure": "1 Hour"}]}`), `currency is "\x1b[2J"`},
		"busy":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, "answer is HTTP 429"},
		"redirected": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, "answer is HTTP 302"},
		"slow": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
		"slow half way": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(`{"Items`))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "deadline exceeded"},
	} {
		answer = c.answer
		limit := 30 * time.Second
		if c.want == "deadline exceeded" {
			limit = 200 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		list := &lifecycle.PriceList{URL: server.URL, Transport: server.Client().Transport, Location: "westeurope"}
		got := lifecycle.Bill{Charges: slices.Clone(b.Charges)}
		err := list.Price(ctx, &got, time.Now())
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) || got.At != nil || got.Up != 0 || got.Charges[0].Price != 0 {
			t.Errorf("%s: error %v, want %s; bill %+v", name, err, c.want, got)
		}
	}
}

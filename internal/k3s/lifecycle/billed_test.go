package lifecycle_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
)

// bill is what is billed, in short.
func bill(all []lifecycle.Charge) (lines []string) {
	for _, c := range all {
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

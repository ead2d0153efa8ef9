package azsim

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// GETs of a virtual machine come from a bucket of 36, which is refilled by 12 a minute;
// another machine has a bucket of its own.
func TestBudgets(t *testing.T) {
	withServerNIC(t, func(b *bench, _ *modelSubstrate, _ *armcompute.VirtualMachinesClient) {
		b.s.Budgets = true
		b.putVM("one", b.plainVM("nic"))
		b.putVM("two", b.plainVM("nic2"))
		get := func(name string) *http.Response {
			return b.sendAbsolute("GET", inGroup+"/providers/Microsoft.Compute/virtualMachines/"+name, "2024-07-01", "")
		}
		time.Sleep(time.Hour)
		served := 0
		for range 40 {
			if get("one").StatusCode == http.StatusOK {
				served++
			}
		}
		if served != 36 {
			b.Errorf("%d GETs at once were served, not 36", served)
		}
		refused := get("one")
		if code, _ := errorOf(t, refused); refused.StatusCode != http.StatusTooManyRequests || code != "OperationNotAllowed" || refused.Header.Get("Retry-After") != "5" {
			b.Errorf("then %d %s %v", refused.StatusCode, code, refused.Header)
		}
		if left := get("two").Header.Get("X-Ms-Ratelimit-Remaining-Resource"); left != "Microsoft.Compute/LowCostGetResource;35" {
			b.Errorf("of another machine are left %q", left)
		}
		time.Sleep(5 * time.Second)
		if got := get("one"); got.StatusCode != http.StatusOK {
			b.Errorf("after Retry-After: %d", got.StatusCode)
		}
	})
}

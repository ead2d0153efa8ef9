package azsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Azure Compute throttles the requests about one virtual machine, scale set or instance by
// token buckets ("Compute throttling limits", 2024-05-27). Names and capacities are those of
// x-ms-ratelimit-remaining-resource in recorded answers of 2024. That of operations was
// recorded as 60 and is documented as 45. Limits of a subscription are higher than one
// cluster's tools reach, and are not simulated.

// A budget is the bucket that a resource has for requests of one kind.
type budget struct {
	name     string
	refill   float64 // tokens a minute
	capacity float64
}

// A bucket is what is left of a budget.
type bucket struct {
	tokens float64
	at     time.Time
}

var operationBudget = budget{"GetOperationResource", 15, 60}

// budgetOf returns the budget that the call spends, and whether there is one.
func (c *call) budgetOf() (b budget, limited bool) {
	write := func(name string) (budget, bool) { return budget{name + "Resource", 4, 12}, true }
	read := func(name string) (budget, bool) { return budget{name + "Resource", 12, 36}, true }
	if c.rt == nil || len(c.id.names) == 0 {
		return b, false
	}
	reads := c.r.Method == http.MethodGet
	deletes := c.r.Method == http.MethodDelete || slices.Contains([]string{"deallocate", "simulateeviction"}, strings.ToLower(c.id.tail))
	isNew := c.r.Method == http.MethodPut && c.s.find(c.id) == nil
	switch name := strings.TrimSuffix(c.rt.name, "/extensions"); {
	case name == machineType && reads:
		return read("LowCostGet")
	case name == machineType && isNew && name == c.rt.name:
		return write("PutVM")
	case name == machineType && deletes && name == c.rt.name:
		return write("DeleteVM")
	case name == machineType:
		return write("UpdateVM")
	case strings.EqualFold(name, setType) && reads && c.id.tail != "":
		return budget{"HighCostGetVMScaleSetResource", 10, 30}, true
	case strings.EqualFold(name, instanceType) && reads && len(c.id.names) == 1: // the list
		return budget{"HighCostGetVMScaleSetResource", 10, 30}, true
	case strings.EqualFold(name, setType) && reads:
		return read("GetVMScaleSet")
	case strings.EqualFold(name, setType) && isNew && name == c.rt.name:
		return write("CreateVMScaleSet")
	case strings.EqualFold(name, setType) && deletes && name == c.rt.name:
		return write("DeleteVMScaleSet")
	case strings.EqualFold(name, setType):
		return write("VMScaleSetActions")
	case strings.EqualFold(name, instanceType) && reads:
		return read("GetVMScaleSetVM")
	case strings.EqualFold(name, instanceType) && (deletes || strings.EqualFold(c.id.tail, "poweroff")):
		return write("DeleteVMScaleSetVM")
	case strings.EqualFold(name, instanceType):
		return write("UpdateVMScaleSetVM")
	}
	return b, false
}

// spend takes a token for a request about a resource. The caller holds the lock.
func (c *call) spend(b budget, of resourceID) error {
	if !c.s.Budgets {
		return nil
	}
	if strings.HasSuffix(strings.ToLower(of.typeName()), "/extensions") {
		of = of.parent()
	}
	key := b.name + " " + of.key()
	was, known := c.s.buckets[key]
	if !known {
		was = bucket{b.capacity, c.now}
	}
	perMinute := b.refill / c.s.scaled(time.Minute).Minutes()
	left := min(b.capacity, was.tokens+c.now.Sub(was.at).Minutes()*perMinute)
	if left < 1 {
		c.s.buckets[key] = bucket{left, c.now}
		e := refuse(http.StatusTooManyRequests, "OperationNotAllowed", "The server rejected the request because too many requests have been received for this resource.")
		e.details = []*armError{{code: "TooManyRequests", target: b.name, message: fmt.Sprintf("%.0f requests a minute are allowed.", b.refill)}}
		e.retryAfter = time.Duration((1 - left) / perMinute * float64(time.Minute))
		return e
	}
	c.s.buckets[key] = bucket{left - 1, c.now}
	c.remaining = fmt.Sprintf("Microsoft.Compute/%s;%.0f", b.name, left-1)
	return nil
}

// Package azuretest is the contract of azure.Cloud as a suite, which runs on any Azure: on
// azsim in virtual time (internal/azure/arm) and on a subscription of somebody's (test/live).
// It asserts what a fresh read shows afterwards, not which requests were sent.
//
// A statement that docs/explanation/not-yet-met.md lists as open follows a call of claim, so
// that a run on the real Azure answers it.
package azuretest

import (
	"context"
	"errors"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

// T is what checks report to: *testing.T, or a run outside of go test. Fatal and Fatalf end
// the check's goroutine.
type T interface {
	Helper()
	Context() context.Context
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// A Fixture is an Azure with one pool for one check: two instances of a Marketplace image in
// a region with zones, and the extensions "first" and "second", provisioned in this order.
// The resource group has nothing else that the check could meet, but for other pools and
// what their checks made.
type Fixture struct {
	T
	Cloud, Another azure.Cloud // Another is what another process has
	Pool           fleet.ResourceID
	Location, Size string
	Flexible       bool // the pool's instances are virtual machines
	Wait           func(time.Duration)
	// Vault is a key vault that an extension may name; "" leaves that out.
	Vault fleet.ResourceID
	// Before is called before a change is begun, and what it returns after it; nil for none.
	Before func(fleet.Change) (after func())
	// Claim is called before statements about an open claim, and with "" after them; nil for none.
	Claim func(Claim)
}

// A Claim is an open question of docs/explanation/not-yet-met.md that a check answers.
type Claim string

// The claims, by how their rows of the page begin.
const (
	ClaimNull      Claim = "PATCH of a model with `null` for publisher, offer, sku and version removes them"
	ClaimAttach    Claim = "`attachDetachDataDisks` serves instances of Uniform scale sets"
	ClaimStandard  Claim = "SecurityType `Standard` as a feature of an image definition"
	ClaimProtect   Claim = "Instance protection by PUT leaves everything else of the instance alone"
	ClaimUnprotect Claim = "`\"protectionPolicy\": null` in a PUT of an instance removes the policy"
	ClaimAdopt     Claim = "An image version in the making survives its snapshot's source, and can be adopted by another process"
	ClaimExtension Claim = "PUT of an extension of a scale set writes that extension alone"
	ClaimPublish   Claim = "An image version leaves `excludeFromLatest` by a PUT of itself"
	ClaimETag      Claim = "ETags of scale sets"
)

// A Check is one part of the contract.
type Check struct {
	Name   string
	Claims []Claim // what Do makes statements about
	Do     func(Fixture)
}

// Checks returns the suite.
func Checks() []Check {
	return []Check{
		{"Reads", nil, checkReads},
		{"Missing", nil, checkMissing},
		{"Power", nil, checkPower},
		{"Protection", []Claim{ClaimProtect, ClaimUnprotect}, checkProtection},
		{"Snapshot", nil, checkSnapshots},
		{"DataDisk", []Claim{ClaimAttach}, checkDataDisks},
		{"Image", []Claim{ClaimStandard, ClaimAdopt, ClaimNull, ClaimPublish}, checkImages},
		{"Latest", []Claim{ClaimStandard}, checkLatest},
		{"Extensions", []Claim{ClaimExtension}, checkExtensions},
		{"Capacity", nil, checkCapacity},
		{"Conditions", []Claim{ClaimETag}, checkConditions},
		{"Resume", nil, checkResume},
	}
}

// claim says which claim the statements are about that follow.
func (f Fixture) claim(c Claim) {
	if f.Claim != nil {
		f.Claim(c)
	}
}

// name makes a name of the check's own for a thing beside its pool.
func (f Fixture) name(typ, name string) fleet.ResourceID {
	return f.Pool.In(typ, f.Pool.Name()+"-"+name)
}

// instance is the id of an instance of the pool, which need not exist.
func (f Fixture) instance(name string) fleet.ResourceID {
	if f.Flexible {
		return f.Pool.In("virtualMachines", name)
	}
	return f.Pool.Child("virtualMachines", name)
}

// maxPolls bounds how often one operation is polled.
const maxPolls = 2000

// Finish begins a change and waits for its end.
func (f Fixture) Finish(change fleet.Change) {
	f.Helper()
	if err := f.Try(change); err != nil {
		f.Fatalf("%s: %v; expected to be done", change.Verb(), err)
	}
}

// Try is Finish where the change may fail.
func (f Fixture) Try(change fleet.Change) error {
	f.Helper()
	after := func() {}
	if f.Before != nil {
		after = f.Before(change)
	}
	tok, err := f.Cloud.Begin(f.Context(), change)
	after()
	if err != nil {
		return err
	}
	return f.Follow(f.Cloud, tok)
}

// Follow polls an operation to its end.
func (f Fixture) Follow(c azure.Cloud, tok fleet.Token) error {
	f.Helper()
	if tok == "" {
		return nil
	}
	for range maxPolls {
		p, err := c.Poll(f.Context(), tok)
		if err != nil || p.Done {
			return err
		}
		if p.Wait <= 0 || p.Percent < -1 || p.Percent > 100 {
			f.Fatalf("an operation that runs is %+v; expected a wait, and at most 100 %%", p)
		}
		f.Wait(p.Wait)
	}
	return errors.New("the operation does not end")
}

// Again begins a change whose effect is there: it must change nothing.
func (f Fixture) Again(change fleet.Change) {
	f.Helper()
	if tok, err := f.Cloud.Begin(f.Context(), change); err != nil || tok != "" {
		f.Errorf("%s again: token %.20q, error %v; expected neither", change.Verb(), tok, err)
	}
}

// Instances lists the pool's, of which there must be n.
func (f Fixture) Instances(n int) []fleet.Instance {
	f.Helper()
	list := Get(f, f.Cloud.Instances, f.Pool)
	if len(list) != n {
		f.Fatalf("%d instances, expected %d", len(list), n)
	}
	return list
}

func (f Fixture) uses(definition fleet.ResourceID) []fleet.ImageUse {
	f.Helper()
	return Get(f, func(ctx context.Context, id fleet.ResourceID) ([]fleet.ImageUse, error) { return f.Cloud.Uses(ctx, id) }, definition)
}

// Get reads what must be there.
func Get[V any](t T, read func(context.Context, fleet.ResourceID) (V, error), id fleet.ResourceID) V {
	t.Helper()
	v, err := read(t.Context(), id)
	if err != nil {
		t.Fatalf("%v; expected to be read", err)
	}
	return v
}

// WantKind fails unless the error has the kind, and names what was tried on what.
func WantKind(t T, err error, kind fleet.Kind) {
	t.Helper()
	var e *fleet.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Op == "" || e.Resource == "" {
		t.Errorf("%v (%q), expected kind %q", err, fleet.KindOf(err), kind)
	}
}

func only[V any](_ V, err error) error { return err }

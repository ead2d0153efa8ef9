package denial

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/cluster/kube"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/plan"
	"github.com/ortet/ortet/internal/image/prove"
	"github.com/ortet/ortet/internal/image/rollback"
)

// flexible makes a pool's scale set Flexible.
func flexible(body map[string]any) {
	p := body["properties"].(map[string]any)
	p["orchestrationMode"], p["singlePlacementGroup"], p["platformFaultDomainCount"] = "Flexible", false, 1
	delete(p, "overprovision")
	p["virtualMachineProfile"].(map[string]any)["networkProfile"].(map[string]any)["networkApiVersion"] = "2020-11-01"
}

// flexibleActions are those of the documented role for Flexible pools.
func flexibleActions() (onGroup, onSubscription []string) {
	return azure.OfFlexible(azure.ActionsOf(azure.Changes()...)), azure.SubscriptionReadActions()
}

func flexibleWorld(t *testing.T, onGroup, onSubscription []string, rules []kube.Rule) *world {
	return newWorldOf(t, azsim.Spec{}, flexible, rules,
		principal(clientID, append(slices.Clone(onGroup), "Microsoft.StandbyPool/standbyVirtualMachinePools/read"), onSubscription))
}

// TestFlexible: with exactly the role of Flexible pools, captures with a new node and by another
// way succeed, and a rollback; and each action of it was used.
func TestFlexible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onGroup, onSubscription := flexibleActions()
		rules := documentedRules(true)
		w := flexibleWorld(t, onGroup, onSubscription, rules)
		w.putDaemonSet("kured")
		q := fullRequest(false)
		q.NewNodes = 0 // a node made from it would keep its version
		first := mustCapture(w, q)
		time.Sleep(25 * time.Hour)
		w.fill()
		second := mustCapture(w, fullRequest(true))
		time.Sleep(25 * time.Hour)
		q.Node = next
		third := mustCapture(w, q)
		if !slices.Contains(third.Pruned, first.Version.Name()) {
			t.Errorf("pruned %v, not %s", third.Pruned, first.Version.Name())
		}
		back, err := w.open(rollbackRules(t)).rollback.Rollback(t.Context(), rollback.Request{Node: donor})
		must(t, err)
		if !back.To.Equal(second.Version) {
			t.Errorf("went back to %s, not %s", back.To, second.Version)
		}
		if nodes := w.nodes(); nodes != 4 {
			t.Errorf("%d nodes, not 3 and the one that was asked for", nodes)
		}
		w.usedAll(slices.DeleteFunc(append(onGroup, onSubscription...), func(a string) bool {
			return strings.HasSuffix(a, "/extensions/write") // of a rollback to the original
		}), nil)
	})
}

// TestFlexibleDenied takes away each action of a Flexible pool's role.
func TestFlexibleDenied(t *testing.T) {
	onGroup, onSubscription := flexibleActions()
	rules := documentedRules(true)
	for _, d := range denials(onGroup, onSubscription, nil) {
		if exceptions[d.of] != "" || strings.HasSuffix(d.of, "/deallocate/action") {
			continue
		}
		t.Run(short(d.of), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := flexibleWorld(t, d.onGroup, d.onSubscription, rules)
				_, err := w.open(rules).Capture(t.Context(), fullRequest(false))
				w.refused(err, d.said...)
			})
		})
	}
}

// unprotecting is an Azure that protects no virtual machine.
type unprotecting struct {
	azure.Cloud
	as    fleet.Kind
	asked *int
}

func (c unprotecting) Begin(ctx context.Context, change fleet.Change) (fleet.Token, error) {
	if _, is := change.(fleet.ProtectInstance); is {
		*c.asked++
		return "", &fleet.Error{Op: change.Verb(), Kind: c.as, Code: "OperationNotAllowed", Err: errors.New("use resource locks")}
	}
	return c.Cloud.Begin(ctx, change)
}

// TestFlexibleUnprotected: where Azure refuses to protect a member, a capture goes on without and
// says so once.
func TestFlexibleUnprotected(t *testing.T) {
	for as, most := range map[fleet.Kind]int{fleet.KindUnsupported: 2, fleet.KindInvalid: 2, fleet.KindConflict: 40} {
		t.Run(string(as), func(t *testing.T) { unprotected(t, as, most) })
	}
}

func unprotected(t *testing.T, as fleet.Kind, most int) {
	synctest.Test(t, func(t *testing.T) {
		onGroup, onSubscription := flexibleActions()
		rules, asked := documentedRules(true), 0
		w := flexibleWorld(t, onGroup, onSubscription, rules)
		result, err := w.open(rules, func(c azure.Cloud) azure.Cloud { return unprotecting{c, as, &asked} }).Capture(t.Context(), fullRequest(false))
		must(t, err)
		said := 0
		for _, note := range result.Notes {
			if strings.Contains(note, "use resource locks") {
				said++
			}
		}
		if said != 1 || asked < 1 || asked > most {
			t.Errorf("said %d times, asked %d times: %q", said, asked, result.Notes)
		}
	})
}

// TestFlexibleCanary: a version is proved by clones in a Flexible scale set, with the role of
// Flexible pools and what a canary needs.
func TestFlexibleCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		onGroup, onSubscription := flexibleActions()
		actions := slices.Concat(onGroup, ofCanary(), []string{azure.JoinSubnet})
		w := flexibleWorld(t, actions, append(onSubscription, usagesRead), documentedRules(true))
		q := fullRequest(false)
		q.Canary, q.CanarySoak, q.NewNodes, q.Bootstrap = 2, time.Minute, 0, plan.BootstrapBaked
		result := mustCapture(w, q)
		if len(result.Canary) != 2 || result.Canary[0].Result != prove.Passed {
			t.Errorf("%+v", result.Canary)
		}
	})
}

package simulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

// bootstrapped is a pool that boots by two extensions.
func bootstrapped(protected string) Pool {
	return Pool{Instances: 3, Pods: 1, Extensions: []string{"monitor", "cse", "bootstrap"}, Settings: protected}
}

// extensionStories are rollbacks that restore what captures deleted from the model.
var extensionStories = []Story{
	{Name: "extensions restored", Seed: 60, Pool: bootstrapped(""), Asks: []Ask{
		{Do: "capture"}, {Do: "wait", For: day}, {Do: "capture", Node: 1}, {Do: "rollback", To: "original"}, {Do: "scale out", N: 1}}},
	{Name: "extensions with protected settings restored", Seed: 61, Pool: bootstrapped("sealed"), Asks: []Ask{
		{Do: "capture"}, {Do: "rollback", To: "original"}, {Do: "wait", For: day}, {Do: "capture"}, {Do: "rollback", To: "original"}}},
	{Name: "extensions restored, killed at the first", Seed: 62, Pool: bootstrapped("sealed"), Asks: []Ask{{Do: "capture"}, {Do: "rollback", To: "original"}},
		Happen: []Event{{At: "azure PUT virtualMachineScaleSets/pool1/extensions/vmssCSE", What: "kill after"}}},
	{Name: "extension whose protected settings are unknown", Seed: 63, Pool: bootstrapped("unknown"), Asks: []Ask{
		{Do: "capture"}, {Do: "rollback", To: "original", Exit: 3}}, Cannot: "extension vmssCSE: its protected settings"},
	{Name: "extension whose protected settings are unknown, accepted", Seed: 63, Pool: bootstrapped("unknown"), Asks: []Ask{
		{Do: "capture"}, {Do: "rollback", To: "original", AcceptLost: true, Exit: 4}}, Cannot: "ExtensionLost"},
}

func TestExtensionStories(t *testing.T) {
	for _, s := range extensionStories {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if r := play(t, s); len(r.violations)+len(r.missed) > 0 {
				t.Errorf("%d events missed\n%s", len(r.missed), explain(s, r))
			} else if *verbose {
				t.Log(explain(s, r))
			}
		})
	}
}

// extensionsNow gives what the model has of each extension, with protected settings.
func (w *world) extensionsNow() map[string]string {
	all := map[string]string{}
	w.azure.View(func(v *azsim.View) {
		set, ok := v.Get(string(w.pool)).(*armcompute.VirtualMachineScaleSet)
		if !ok || set.Properties.VirtualMachineProfile.ExtensionProfile == nil {
			return
		}
		for _, e := range set.Properties.VirtualMachineProfile.ExtensionProfile.Extensions {
			own := *e.Properties
			own.ProvisioningState = nil
			text, _ := json.Marshal(own) // what was read from JSON
			all[*e.Name] = string(text)
		}
	})
	return all
}

// lost reports whether a rollback was refused for settings that no donor's disk could
// show, since others gave the model another image.
func (w *world) lost(err error) bool {
	refused := new(workflow.Refused)
	return w.isTouched("model") && errors.As(err, &refused) && slices.ContainsFunc(refused.Problems, func(p fleet.Problem) bool { return p.Code == "ExtensionLost" })
}

// checkOriginal compares the model's extensions after a rollback to the original.
func (w *world) checkOriginal(p *process) {
	code, text := p.code(), fmt.Sprint(p.err)
	if p.rollback.Original == nil || code != 0 && code != 4 || w.isTouched("model") {
		return
	}
	now := w.extensionsNow()
	for _, name := range slices.Sorted(maps.Keys(w.original)) {
		if now[name] != w.original[name] && (code == 0 || !strings.Contains(text, name)) {
			w.broken(14, "%s ends with exit %d, and extension %s is %q and was %q: %s", p.name, code, name, now[name], w.original[name], text)
		}
	}
}

type toSave struct {
	kind       wire.SealedKind
	name, text string
}

// saved gives what is on the disk, and reports the handlers without protected settings.
func (w *world) saved(report *wire.GeneralizeReport) []toSave {
	all := []toSave{{wire.CustomData, "", firstCustomData}}
	for _, e := range w.story.Pool.Extensions {
		handler := kinds[e][1] + "." + kinds[e][2]
		switch {
		case e != "cse" || w.story.Pool.Settings == "":
			report.NoProtected = append(report.NoProtected, handler)
		case w.story.Pool.Settings == "sealed":
			all = append(all, toSave{wire.ProtectedSettings, handler, `{"script":"secret"}`})
		}
	}
	return all
}

package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/workflow"
)

// gpuFile is file with GPUs in its pool.
func gpuFile(t *testing.T, size, gpu string) string {
	return edited(t, file, map[string]string{"spec.pools[].size": `"` + size + `"`, "spec.pools[].gpu": gpu,
		"spec.artifacts.containerToolkit": `[` + toolkitDeb("1") + `]`, "spec.options.devicePlugin": autoscaler})
}

// A pool with GPUs is refused for other sizes, and plan says where Azure's page does not have the
// extension for size and image.
func TestPlanOfGPUs(t *testing.T) {
	play(t, nil, func(x *site) {
		_, err := x.manager(gpuFile(t, "Standard_D2s_v5", `{}`)).Plan(x.ctx)
		if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "spec.pools[0].size: size Standard_D2s_v5 has no GPU, which gpu needs") || !strings.Contains(err.Error(), "use a size such as Standard_NC4as_T4_v3") {
			x.Errorf("a size without GPUs: %v", err)
		}
		const cuda = "pool agents: for the CUDA driver of Standard_NC4as_T4_v3, Azure's page on the NVIDIA GPU Driver Extension lists Ubuntu 20.04 LTS and RHEL 7.9, " +
			"and does not list Canonical:ubuntu-24_04-lts:server; if the extension fails, use gpu: {driver: none} and the distribution's signed modules in packages"
		golden := edited(t, gpuFile(t, "Standard_NV6ads_A10_v5", `{}`), map[string]string{"spec.pools[].image": `{"id": "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g/providers/Microsoft.Compute/galleries/a/images/b"}`})
		if p, err := x.manager(golden).Plan(x.ctx); err != nil || !strings.Contains(strings.Join(p.Notes, "\n"), "and lists no images of galleries") {
			x.Errorf("an image of a gallery: %v %+v", err, p)
		}
		for _, c := range []struct{ size, gpu, want string }{
			{"Standard_NC4as_T4_v3", `{}`, cuda},
			{"Standard_NC4as_T4_v3", `{"driver": "none"}`, ""},
			{"Standard_NC4as_T4_v3", `{"driver": "image"}`,
				"spec.artifacts.containerToolkit is not used: no pool has gpu with driver extension or none; add what uses it, or delete it"},
			{"Standard_NV6ads_A10_v5", `{}`, ""},
			{"Standard_NC24ads_A100_v4", `{"driver": "none"}`, ""},
		} {
			p, err := x.manager(gpuFile(t, c.size, c.gpu)).Plan(x.ctx)
			if err != nil {
				x.Errorf("%s %s: %v", c.size, c.gpu, err)
			} else if notes := strings.Join(p.Notes, "\n"); notes != c.want {
				x.Errorf("%s %s: %q, want %q", c.size, c.gpu, notes, c.want)
			}
		}
	})
}

// Plan names what cluster.yaml gives and nothing uses.
func TestPlanNamesWhatIsNotUsed(t *testing.T) {
	play(t, nil, func(x *site) {
		idle := map[string]string{"spec.artifacts.containerToolkit": `[` + toolkitDeb("1") + `]`, "spec.options.devicePlugin": autoscaler,
			"spec.artifacts.tailscale": tailnetArtifact, "spec.options.clusterAutoscaler": autoscaler}
		byCPU := edited(t, file, map[string]string{"spec.pools[].count": "null", "spec.pools[].min": "1", "spec.pools[].max": "2"})
		p, err := x.manager(edited(t, byCPU, idle)).Plan(x.ctx)
		if err != nil || len(p.Notes) != len(idle) {
			x.Fatalf("%v %q", err, p.Notes)
		}
		for field := range idle {
			if !strings.Contains(strings.Join(p.Notes, "\n"), field+" is not used: ") {
				x.Errorf("plan does not name %s: %q", field, p.Notes)
			}
		}
		used := map[string]string{"spec.artifacts.tailscale": tailnetArtifact, "spec.access.tailscale": `{}`}
		p, err = x.manager(edited(t, gpuFile(t, "Standard_NV6ads_A10_v5", `{}`), used)).Plan(x.ctx)
		if err != nil || len(p.Notes) > 0 {
			x.Errorf("all is used: %v %q", err, p.Notes)
		}
	})
}

// A catalogue has one GPU in each size that azsim does not know.
type catalogue struct{ azure.Cloud }

func (c catalogue) Sizes(ctx context.Context, subscription, location string, sizes ...string) (map[string]fleet.SizeInfo, error) {
	all, err := c.Cloud.Sizes(ctx, subscription, location, sizes...)
	for _, name := range sizes {
		if _, known := all[strings.ToLower(name)]; !known && err == nil {
			all[strings.ToLower(name)] = fleet.SizeInfo{Name: name, GPUs: 1}
		}
	}
	return all, err
}

// Sizes with GPUs of AMD, and with FPGAs, are refused for gpu.
func TestGPUsOfOthers(t *testing.T) {
	play(t, nil, func(x *site) {
		for size, refused := range map[string]bool{
			"Standard_NV4as_v4": true, "Standard_NV4ads_V710_v5": true, "Standard_NG8ads_V620_v1": true, "Standard_ND96isr_MI300X_v5": true, "Standard_NM16ads_MA35D": true, "Standard_NP10s": true,
			"Standard_NV12s_v3": false, "Standard_NV12ads_A10_v5": false, "Standard_NC6s_v3": false, "Standard_ND96isr_H100_v5": false, "Standard_NC40ads_H100_v5": false,
		} {
			m := x.manager(gpuFile(t, size, `{"driver": "image"}`))
			m.Cloud = catalogue{m.Cloud}
			_, err := m.Plan(x.ctx)
			if !refused && err != nil || refused && (workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(), "size "+size+" has no GPU of NVIDIA, which gpu needs")) {
				x.Errorf("%s is refused: want %t: %v", size, refused, err)
			}
		}
	})
}

// driverOf is the state of the driver's extension on the pool's machines; "" is none.
func (x *site) driverOf() string {
	x.Helper()
	list, err := x.cloud.Instances(x.ctx, fleet.ResourceID(pool))
	if err != nil || len(list) == 0 {
		x.Fatalf("instances: %v %v", list, err)
	}
	var all struct {
		Value []struct {
			Name       string
			Properties struct{ ProvisioningState string }
		}
	}
	x.read(string(list[0].ID)+"/extensions", &all)
	for _, e := range all.Value {
		return e.Name + " " + e.Properties.ProvisioningState
	}
	return ""
}

// chain is what an agent of the pool waited for, in time since began, as Azure shows it.
func (x *site) chain(began time.Time) []string {
	x.Helper()
	list, err := x.cloud.Instances(x.ctx, fleet.ResourceID(pool))
	if err != nil || len(list) == 0 {
		x.Fatalf("instances: %v %v", list, err)
	}
	type statuses []struct {
		Code string
		Time time.Time
	}
	var machine struct {
		Properties struct{ TimeCreated time.Time }
	}
	var view struct {
		Statuses   statuses
		VMAgent    struct{ Statuses statuses }
		Extensions []struct {
			Name     string
			Statuses statuses
		}
	}
	x.read(string(list[0].ID), &machine)
	x.read(string(list[0].ID)+"/instanceView", &view)
	line := func(what string, at time.Time) string {
		return fmt.Sprintf("%8s %s", at.Sub(began).Round(time.Second), what)
	}
	all := []string{line("the machine is made", machine.Properties.TimeCreated)}
	for _, e := range view.Extensions {
		for _, s := range e.Statuses {
			all = append(all, line(e.Name+" "+s.Code, s.Time))
		}
	}
	for _, s := range view.Statuses {
		if !s.Time.IsZero() {
			all = append(all, line("the machine is "+s.Code, s.Time))
		}
	}
	return append(all, line("up ends", time.Now()))
}

// A pool with GPUs is made with the extension's ten minutes, or in less where its image has the
// driver; an extension that fails ends up, and the same command goes on with another driver.
func TestOutcomeGPUPool(t *testing.T) {
	for _, c := range []struct {
		name, gpu, driver string
		least, most       time.Duration
	}{
		{"extension", `{}`, "ortet-nvidia-driver Succeeded", 10 * time.Minute, 20 * time.Minute},
		{"image", `{"driver": "image"}`, "", 0, 10 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, nil, func(x *site) {
				go x.boot()
				began := time.Now()
				r := x.up(gpuFile(t, "Standard_NV6ads_A10_v5", c.gpu))
				if took := time.Since(began); !r.Ready || took < c.least || took > c.most {
					x.Errorf("ready: %t, after %s; want %s to %s", r.Ready, took, c.least, c.most)
				}
				x.Logf("gpu: %s\n%s", c.gpu, strings.Join(x.chain(began), "\n"))
				if got := x.driverOf(); got != c.driver {
					x.Errorf("extension of the agents: %q, want %q", got, c.driver)
				}
				if p, err := x.manager(gpuFile(t, "Standard_NV6ads_A10_v5", c.gpu)).Plan(x.ctx); err != nil || len(p.Changes) > 0 || len(p.Fields) > 0 {
					x.Errorf("plan after up: %v %+v %+v", err, p.Changes, p.Fields)
				}
			})
		})
	}
	t.Run("extension fails", func(t *testing.T) {
		play(t, nil, func(x *site) {
			go x.boot()
			if err := x.s.AddFault(azsim.Fault{Action: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/extensions/provision", Path: "/ortet-nvidia-driver$",
				Count: 1, Effect: azsim.EffectError, Message: "Enable failed with exit code 14"}); err != nil {
				x.Fatal(err)
			}
			r, err := x.manager(gpuFile(t, "Standard_NV6ads_A10_v5", `{}`)).Up(x.ctx, lifecycle.UpOptions{})
			if workflow.ExitCode(err) != workflow.ExitNeedsPerson || len(r.Failures) != 1 || !strings.Contains(r.Failures[0].Message, "exit code 14") {
				x.Errorf("exit code %d, %v, %+v", workflow.ExitCode(err), err, r)
			}
			if r := x.up(gpuFile(t, "Standard_NV6ads_A10_v5", `{"driver": "none"}`)); !r.Ready {
				x.Errorf("%+v", r)
			}
		})
	})
	t.Run("evicted meanwhile", func(t *testing.T) {
		play(t, nil, func(x *site) {
			go x.boot()
			var evicted atomic.Bool
			go func() { // some minutes before the driver is there
				for x.ctx.Err() == nil && !evicted.Load() {
					time.Sleep(5 * time.Minute)
					evicted.Store(x.s.Evict(pool+"/virtualMachines/0") == nil)
				}
			}()
			r, err := x.manager(gpuFile(t, "Standard_NV6ads_A10_v5", `{}`)).Up(x.ctx, lifecycle.UpOptions{})
			set, _ := x.thing(pool)
			const note = "pool agents has 1 of 2 agents: 1 evicted; ortet cluster up makes them again"
			if err != nil || !evicted.Load() || set.SKU.Capacity != 1 || strings.Join(r.Notes, "") != note {
				x.Errorf("evicted: %t, %d agents left; up: %v, notes %q; want %q", evicted.Load(), set.SKU.Capacity, err, r.Notes, note)
			}
			x.up(gpuFile(t, "Standard_NV6ads_A10_v5", `{}`))
			if set, _ := x.thing(pool); set.SKU.Capacity != 2 || x.driverOf() != "ortet-nvidia-driver Succeeded" {
				x.Errorf("the pool has %d agents of 2, driver %q", set.SKU.Capacity, x.driverOf())
			}
		})
	})
	t.Run("extension hangs", func(t *testing.T) {
		play(t, nil, func(x *site) {
			go x.boot()
			go func() { // as soon as the machine has it
				hangs := azsim.Report{Extensions: []azsim.ExtensionReport{{Name: "ortet-nvidia-driver", Status: azsim.StatusTransitioning, Message: "downloading"}}}
				for x.ctx.Err() == nil && x.s.Report(pool+"/virtualMachines/0", hangs) != nil {
					time.Sleep(10 * time.Second)
				}
			}()
			r, err := x.manager(gpuFile(t, "Standard_NV6ads_A10_v5", `{}`)).Up(x.ctx, lifecycle.UpOptions{})
			if workflow.ExitCode(err) != workflow.ExitNeedsPerson || len(r.Failures) != 1 || !strings.Contains(r.Failures[0].Message, "Provisioning of VM extension ortet-nvidia-driver has timed out") {
				x.Errorf("exit code %d, %v, %+v", workflow.ExitCode(err), err, r)
			}
		})
	})
}

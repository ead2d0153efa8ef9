package lifecycle_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/workflow"
)

func withOptions(text, options string) string {
	return strings.Replace(text, "  pools:", "  options: "+options+"\n  pools:", 1)
}

func withServer(text, size string) string {
	return strings.Replace(text, "  pools:", "  server: {size: "+size+"}\n  pools:", 1)
}

func TestSizes(t *testing.T) {
	requests := 0
	play(t, func(s *azsim.Server) {
		s.OnRequest = func(r azsim.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(strings.ToLower(r.Path), "/microsoft.compute/skus") {
				requests++
			}
		}
	}, func(x *site) {
		temp := withServer(withPool("size: Standard_D2ds_v5"), "Standard_B2s")
		for name, c := range map[string]struct {
			text  string
			wants []string // all that is refused
		}{
			"default": {file, nil},
			"unknown": {withServer(withPool("size: Standard_D2s_v99"), "Standard_X1"),
				[]string{"spec.server.size: size Standard_X1 is not offered in westeurope",
					"spec.pools[0].size: size Standard_D2s_v99 is not offered", "az vm list-skus"}},
			"no Spot": {withPool("size: Standard_B2ms"), []string{"spec.pools[0].size: size Standard_B2ms has no Spot in Azure",
				"priority: Regular"}},
			"Regular": {withPool("size: Standard_B2ms, priority: Regular"), nil},
			"Arm64": {withServer(withPool("size: Standard_D4ps_v5"), "Standard_D2ps_v5"),
				[]string{"spec.server.size: size Standard_D2ps_v5 is an Arm64", "spec.pools[0].size: size Standard_D4ps_v5 is an Arm64"}},
			"swap": {withOptions(file, "{swapGB: 1}"),
				[]string{"spec.server.size: size Standard_D2s_v5 has no temporary disk, which options.swapGB",
					"spec.pools[0].size: size Standard_D2s_v5 has no temporary disk, which options.swapGB"}},
			"scratch": {withOptions(file, "{scratch: true}"),
				[]string{"spec.pools[0].size: size Standard_D2s_v5 has no temporary disk, which options.scratch"}},
			"temporary disk": {withOptions(temp, "{swapGB: 1, scratch: true}"), nil},
			"zones":          {withPool(`zones: ["1", "3"]`), nil},
			"zone": {strings.Replace(withPool(`zones: ["1", "3"]`), "westeurope", "westcentralus", 1),
				[]string{"spec.pools[0].size: size Standard_D2s_v5 is not offered to this subscription in zone 1 of westcentralus",
					"spec.pools[0].size: size Standard_D2s_v5 is not offered to this subscription in zone 3 of westcentralus"}},
		} {
			requests = 0
			_, err := x.manager(c.text).Plan(x.ctx)
			if requests != 1 {
				x.Errorf("%s: %d requests for the catalogue", name, requests)
			}
			if len(c.wants) == 0 {
				if err != nil {
					x.Errorf("%s: %v", name, err)
				}
				continue
			}
			if workflow.ExitCode(err) != workflow.ExitRefused {
				x.Errorf("%s: not refused: %v", name, err)
				continue
			}
			reasons := 0
			for _, want := range c.wants {
				if strings.HasPrefix(want, "spec.") {
					reasons++
				}
				if !strings.Contains(err.Error(), want) {
					x.Errorf("%s: %q is missing in %v", name, want, err)
				}
			}
			if n := strings.Count(err.Error(), "\n  - "); n != reasons {
				x.Errorf("%s: %d reasons, not %d: %v", name, n, reasons, err)
			}
			if _, err := x.manager(c.text).Up(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitRefused {
				x.Errorf("%s: up is not refused: %v", name, err)
			}
			if err := x.arm.Get(x.ctx, storageGroup, "2021-04-01", &object{}); !fleet.Is(err, fleet.KindNotFound) {
				x.Errorf("%s: storage group: %v", name, err)
			}
		}
	})
}

// A restricting cloud offers no new machines of any size.
type restricting struct {
	azure.Cloud
}

func (r restricting) Sizes(ctx context.Context, subscription, location string, sizes ...string) (map[string]fleet.SizeInfo, error) {
	all, err := r.Cloud.Sizes(ctx, subscription, location, sizes...)
	for name, info := range all {
		info.Restricted = "NotAvailableForSubscription"
		all[name] = info
	}
	return all, err
}

// What runs goes on when Azure restricts its size: only new machines of it are refused.
func TestRestrictedSizes(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		restricted := func(text string) *lifecycle.Manager {
			m := x.manager(text)
			m.Cloud = restricting{m.Cloud}
			return m
		}
		_, err := restricted(file).Up(x.ctx, lifecycle.UpOptions{})
		for _, field := range []string{"spec.server.size", "spec.pools[0].size"} {
			if workflow.ExitCode(err) != workflow.ExitRefused || !strings.Contains(err.Error(),
				field+": size Standard_D2s_v5 is not offered to this subscription in westeurope: NotAvailableForSubscription") {
				x.Errorf("%s: %v", field, err)
			}
		}
		x.up(file)
		if _, err := restricted(file).Up(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Errorf("up of what runs: %v", err)
		}
		if _, err := restricted(twoPools).Up(x.ctx, lifecycle.UpOptions{}); workflow.ExitCode(err) != workflow.ExitRefused ||
			strings.Contains(err.Error(), "pools[0]") || !strings.Contains(err.Error(), "pools[1]") {
			x.Errorf("up of another pool: %v", err)
		}
		// A pool that was resized does not use the file's size.
		x.send(http.MethodPatch, pool, "2024-07-01", object{"sku": object{"name": "Standard_D4s_v5", "tier": "Standard", "capacity": 2}})
		if _, err := restricted(file).Up(x.ctx, lifecycle.UpOptions{}); err != nil {
			x.Errorf("up of a resized pool: %v", err)
		}
	})
}

package lifecycle_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/ortet/ortet/internal/k3s/lifecycle"
	"github.com/ortet/ortet/internal/k3s/recipe"
	"github.com/ortet/ortet/internal/workflow"
)

// Status says ready of a server for which up has not to wait: each of the machine's own words counts.
func TestStatusIsReadyWhereUpDoesNotWait(t *testing.T) {
	play(t, nil, func(x *site) {
		go x.boot()
		x.up(file)
		is := func(what string, want bool) {
			x.Helper()
			if s, err := x.manager(file).Status(x.ctx); err != nil || s.Server == nil || s.Server.Ready != want {
				x.Errorf("%s: %v, %+v; want ready %t", what, err, s.Server, want)
			}
		}
		tag := func(name, value string) {
			x.send(http.MethodPatch, serverVM+"/providers/Microsoft.Resources/tags/default", "2021-04-01",
				object{"operation": "Merge", "properties": object{"tags": object{name: value}}})
		}
		is("after up", true)
		tags := x.tags(serverVM)
		for _, name := range []string{recipe.TagSettings, recipe.TagBoot, recipe.TagCAHash} {
			value := "another"
			if name == recipe.TagCAHash {
				value = ""
			}
			tag(name, value)
			is(name+" is "+value, false)
			tag(name, tags[name])
		}
		is("as it was", true)
	})
}

// What the server reported before a change that restarts it is not taken for its report after.
func TestOutcomeReportOfBeforeARestartDoesNotCount(t *testing.T) {
	for name, text := range map[string]string{"size": withServer(file, "Standard_D4s_v5"), "state disk": withState(file, 16, "Standard_D2s_v5")} {
		play(t, nil, func(x *site) {
			ctx, hangs := context.WithCancel(x.ctx)
			go (&site{T: x.T, s: x.s, arm: x.arm, cloud: x.cloud, ctx: ctx}).boot()
			x.up(file)
			hangs()
			r, err := x.manager(text).Up(x.ctx, lifecycle.UpOptions{})
			if workflow.ExitCode(err) != workflow.ExitNeedsPerson || r.Ready {
				x.Errorf("%s: %v; ready %t of a server that reports nothing", name, err, r.Ready)
			}
		})
	}
}

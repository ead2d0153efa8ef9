package live_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/azure/credential"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/live"
)

// A bench is a subscription and a person who runs make live on it.
type bench struct {
	*testing.T
	azure  *azsim.Server
	env    map[string]string
	out    bytes.Buffer
	before func(*http.Request) error // called before each request; an error is what it gets
	after  func(*http.Request, *http.Response)

	loggedOut atomic.Bool
	cli       func(args []string) error // called at each use of the Azure CLI
	uploaded  []string
}

// on runs a test on a simulated subscription, in virtual time.
func on(t *testing.T, do func(b *bench)) {
	t.Helper()
	out := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, azure: &azsim.Server{Seed: 1}, env: map[string]string{"LIVE_YES": "1", "LIVE_OUT": out, "LIVE_NAME": "ortet-live-one", "LIVE_OWNER": "janedoe"}}
		defer b.azure.Close()
		do(b)
	})
}

func (b *bench) program() live.Program {
	return live.Program{Getenv: func(name string) string { return b.env[name] }, In: strings.NewReader(b.env["answer"]), Out: &b.out, Now: time.Now, Suffix: "abcd", Az: b.az,
		Load: func(context.Context) (credential.Credentials, error) {
			return credential.Credentials{Cloud: azsim.Cloud(azsim.InProcess), TokenCredential: login{b.azure.Credential(""), &b.loggedOut}, Transport: transport{b},
				Subscription: azsim.DefaultSubscription, Tenant: azsim.DefaultTenant, Source: "Azure CLI, jane.doe@corp.example"}, nil
		}}
}

func (b *bench) run(ctx context.Context, want int, words ...string) {
	b.Helper()
	b.out.Reset()
	b.expect(b.program().Run(ctx), want, words)
}

func (b *bench) clean(want int, words ...string) {
	b.Helper()
	b.out.Reset()
	b.expect(b.program().Clean(b.Context()), want, words)
}

func (b *bench) expect(got, want int, words []string) {
	b.Helper()
	if got != want {
		b.Errorf("exit code %d, want %d", got, want)
	}
	for _, w := range words {
		if !strings.Contains(unwrapped(b.out.String()), unwrapped(w)) {
			b.Errorf("output lacks %q", w)
		}
	}
	const rest = "is still in them, within other words"
	if strings.Contains(b.out.String(), rest) != strings.Contains(strings.Join(words, ""), rest) {
		b.Errorf("whether anything %s is wrong", rest)
	}
	if b.Failed() {
		b.Logf("output:\n%s", &b.out)
	}
}

func unwrapped(text string) string { return strings.Join(strings.Fields(text), " ") }

// left lists what the subscription has beside the group that it began with.
func (b *bench) left(want ...string) {
	b.Helper()
	b.lists(want, "2021-04-01", "resourcegroups", "resources")
}

// leftGrants is left of role assignments.
func (b *bench) leftGrants() {
	b.Helper()
	b.lists(nil, "2022-04-01", "providers/Microsoft.Authorization/roleAssignments")
}

func (b *bench) lists(want []string, version string, lists ...string) {
	b.Helper()
	var got []string
	r, err := arm.NewResources(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: b.azure.Credential(""), Transport: b.azure.Transport()})
	if err != nil {
		b.Fatal(err)
	}
	for _, list := range lists {
		err := r.List(b.Context(), fleet.ResourceID("/subscriptions/"+azsim.DefaultSubscription+"/"+list), version, func(item json.RawMessage) error {
			var have struct{ ID, Name string }
			err := json.Unmarshal(item, &have)
			if have.Name != azsim.DefaultResourceGroup && strings.Contains(strings.ToLower(have.ID), "/resourcegroups/") {
				got = append(got, have.ID)
			}
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		b.Errorf("the subscription has %v, want %v", got, want)
	}
}

func (b *bench) file(name string) string {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(b.env["LIVE_OUT"], name))
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

type transport struct{ b *bench }

func (t transport) Do(r *http.Request) (*http.Response, error) {
	if t.b.before != nil {
		if err := t.b.before(r); err != nil {
			return nil, err
		}
	}
	resp, err := t.b.azure.Transport().Do(r)
	if err == nil && t.b.after != nil {
		t.b.after(r, resp)
	}
	return resp, err
}

// isScaleSet reports whether a request is about the n-th scale set that a run makes.
func isScaleSet(r *http.Request, name string) bool {
	return strings.HasSuffix(strings.ToLower(r.URL.Path), "/virtualmachinescalesets/"+name)
}

func TestContractOnAzsim(t *testing.T) {
	on(t, func(b *bench) {
		b.run(b.Context(), live.ExitDone, "resource group ortet-live-one in westeurope", "costs    at most", "nothing of the run is left")
		b.left()
		page := b.file("contract.md")
		if strings.Contains(page, "differs") || strings.Contains(page, "| not reached |\n| ") && !strings.Contains(page, "`attachDetachDataDisks`") {
			b.Errorf("report:\n%s", page)
		}
		t.Logf("%s\n%s", &b.out, page)
	})
}

// The plan fits a terminal, whatever the run.
func TestPlanFits(t *testing.T) {
	for _, what := range []string{"contract", "publish", "full"} {
		onCluster(t, what, func(b *bench) {
			b.env["LIVE_YES"], b.env["LIVE_NAME"] = "", "ortet-live-20261129-1504-of-somebody"
			b.run(b.Context(), live.ExitFailed, "  makes    resource group ortet-live-20261129-1504-of-somebody",
				"GiB of storage", "type yes to begin")
			for line := range strings.Lines(b.out.String()) {
				if len(line) > len("\n")+80 {
					b.Errorf("%d columns: %s", len(line)-1, line)
				}
			}
			t.Log(b.out.String())
		})
	}
}

// Each claim is a row of the page, by its beginning.
func TestClaimsAreRows(t *testing.T) {
	page, err := os.ReadFile("../../docs/explanation/not-yet-met.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range azuretest.Checks() {
		for _, claim := range c.Claims {
			if !strings.Contains(string(page), "\n| "+string(claim)) {
				t.Errorf("not-yet-met.md has no row that begins with %q", claim)
			}
		}
	}
}

func TestDiffers(t *testing.T) {
	on(t, func(b *bench) {
		if err := b.azure.AddFault(azsim.Fault{Method: "PATCH", Path: "/virtualMachineScaleSets/imageunif$", Effect: azsim.EffectIgnoreNull}); err != nil {
			b.Fatal(err)
		}
		b.env["LIVE_CHECK"] = "Image"
		b.run(b.Context(), live.ExitDiffers)
		b.left()
		page := b.file("contract.md")
		for _, want := range []string{"| " + string(azuretest.ClaimNull) + " | Image | differs | as expected |", "Publisher:Canonical", "versions/2026.11.21 alone"} {
			if !strings.Contains(page, want) {
				b.Errorf("report lacks %q:\n%s", want, page)
			}
		}
		t.Log(page)
	})
}

func TestInterrupted(t *testing.T) {
	on(t, func(b *bench) {
		ctx, interrupt := context.WithCancel(b.Context())
		b.before = func(r *http.Request) error {
			if isScaleSet(r, "powerflex") {
				interrupt()
			}
			return nil
		}
		b.env["LIVE_CHECK"] = "Power"
		b.run(ctx, live.ExitFailed, "ended before its end; nothing of it is left")
		b.left()
		if page := b.file("contract.md"); !strings.Contains(page, "| Power | as expected | not reached |") || strings.Contains(page, "differs") {
			b.Errorf("report:\n%s", page)
		}
		t.Log(b.out.String())
	})
}

// A process that was killed sends nothing more.
func TestKilledThenClean(t *testing.T) {
	on(t, func(b *bench) {
		var dead atomic.Bool
		b.before = func(r *http.Request) error {
			if dead.Load() || isScaleSet(r, "readsflex") {
				dead.Store(true)
				return errors.New("killed")
			}
			return nil
		}
		b.env["LIVE_CHECK"] = "Reads"
		b.run(b.Context(), live.ExitFailed, "LEFT: cannot delete resource group ortet-live-one", "LIVE_NAME=ortet-live-one make live-clean", "az group delete --name ortet-live-one")
		b.before = nil
		name := b.env["LIVE_NAME"]
		delete(b.env, "LIVE_NAME")
		b.clean(live.ExitDone, "kept: resource group ortet-live-one of janedoe, whose run may go on")
		b.env["LIVE_CHECK"] = "Missing"
		b.run(b.Context(), live.ExitDone) // beside it, by another name
		b.env["LIVE_NAME"] = name
		b.run(b.Context(), live.ExitFailed, "NOT RUN: resource group ortet-live-one is of a run of janedoe until")
		b.clean(live.ExitDone, "deleting resource group ortet-live-one")
		b.left()
		b.clean(live.ExitDone, "0 resource groups")
	})
	on(t, func(b *bench) { // without a name, once its end has passed
		b.before = func(r *http.Request) error {
			if isScaleSet(r, "readsunif") || r.Method == http.MethodDelete {
				return errors.New("killed")
			}
			return nil
		}
		b.env["LIVE_CHECK"] = "Reads"
		b.run(b.Context(), live.ExitFailed, "LEFT")
		time.Sleep(10 * time.Hour)
		delete(b.env, "LIVE_NAME")
		b.before = nil
		b.env["LIVE_OWNER"] = "another"
		b.clean(live.ExitDone, "kept: ")
		b.env["LIVE_OWNER"], b.env["LIVE_YES"], b.env["answer"] = "janedoe", "", "no\n"
		b.clean(live.ExitDone, "type yes")
		b.env["LIVE_YES"] = "1"
		b.clean(live.ExitDone, "deleting resource group ortet-live-one")
		b.left()
	})
}

func TestRefusesWhatIsNotItsOwn(t *testing.T) {
	on(t, func(b *bench) {
		if err := b.azure.Create(b.Context(), &azsim.Spec{ResourceGroups: []azsim.GroupSpec{{Name: "ortet-live-one", Tags: map[string]string{"of": "others"}}}}); err != nil {
			b.Fatal(err)
		}
		changed := func(r *http.Request) error {
			if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "ortet-live-one") {
				b.Errorf("%s %s", r.Method, r.URL.Path)
			}
			return nil
		}
		b.before = changed
		b.run(b.Context(), live.ExitFailed, "NOT RUN: resource group ortet-live-one exists and is not of make live; nothing in it was touched")
		b.clean(live.ExitFailed, "is not of make live")
	})
}

func TestRefusedDeletionIsNamed(t *testing.T) {
	on(t, func(b *bench) {
		fault := azsim.Fault{Name: "lock", Method: "DELETE", Path: "/resourceGroups/ortet-live-one$", Effect: azsim.EffectError, Status: 409, Code: "ScopeLocked"}
		if err := b.azure.AddFault(fault); err != nil {
			b.Fatal(err)
		}
		ctx, interrupt := context.WithCancel(b.Context())
		b.before = func(r *http.Request) error {
			if isScaleSet(r, "readsunif") {
				interrupt()
			}
			return nil
		}
		b.run(ctx, live.ExitFailed, "LEFT: cannot delete resource group ortet-live-one", "ScopeLocked", "az group delete --name ortet-live-one")
		b.azure.RemoveFault("lock")
		b.before = nil
		b.clean(live.ExitDone)
		b.left()
	})
}

func TestNotRun(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		do   func(b *bench)
		want string
	}{
		"not confirmed":    {env: map[string]string{"LIVE_YES": "", "answer": "no\n"}, want: "NOT RUN: not confirmed"},
		"unknown run":      {env: map[string]string{"LIVE": "all"}, want: "LIVE=all: unknown run; want contract, publish or full"},
		"unknown check":    {env: map[string]string{"LIVE_CHECK": "Imag"}, want: "LIVE_CHECK=Imag: no such check; want one of Reads, "},
		"bad name":         {env: map[string]string{"LIVE_NAME": "A/b"}, want: "LIVE_NAME=A/b: want"},
		"region":           {env: map[string]string{"LIVE_REGION": "westcentralus"}, want: "by LIVE_REGION"},
		"quota":            {do: func(b *bench) { b.azure.Quota = map[string]int{"cores": 4} }, want: "quota cores in westeurope: 0 of 4 vCPUs used, 8 needed"},
		"folder":           {env: map[string]string{"LIVE_OUT": "/dev/null/live"}, want: "NOT RUN: cannot write the report: mkdir /dev/null: not a directory; choose another folder by LIVE_OUT"},
		"policy of groups": {do: func(b *bench) { b.deny("/resourceGroups/ortet-live-one$") }, want: "RequestDisallowedByPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, func(b *bench) {
				for k, v := range c.env {
					b.env[k] = v
				}
				if c.do != nil {
					c.do(b)
				}
				b.run(b.Context(), live.ExitFailed, c.want)
				b.left()
			})
		})
	}
	t.Run("no credentials", func(t *testing.T) {
		var out bytes.Buffer
		p := live.Program{Getenv: func(string) string { return "" }, Out: &out, Now: time.Now, Suffix: "abcd", Load: func(ctx context.Context) (credential.Credentials, error) {
			return credential.Load(ctx, credential.Config{DefaultFile: filepath.Join(t.TempDir(), "azure.json"), Run: func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no az") }})
		}}
		if code := p.Run(t.Context()); code != live.ExitFailed || !strings.HasPrefix(out.String(), "NOT RUN: ") {
			t.Errorf("exit code %d: %s", code, &out)
		}
		t.Log(out.String())
	})
}

func (b *bench) deny(path string) {
	b.Helper()
	if err := b.azure.AddFault(azsim.Fault{Method: "PUT", Path: path, Effect: azsim.EffectError, Status: 403, Code: "RequestDisallowedByPolicy"}); err != nil {
		b.Fatal(err)
	}
}

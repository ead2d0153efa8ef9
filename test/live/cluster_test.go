package live_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/credential"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/live"
)

const ownAddress = "198.51.100.23"

// onCluster is on, with what a run on a cluster needs. Its machines boot nothing: the whole
// run is TestElasticLive's.
func onCluster(t *testing.T, what string, do func(b *bench)) {
	t.Helper()
	files := t.TempDir()
	for _, name := range []string{"k3s", "ortet", "ortet-node", "images.tar"} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", t.TempDir())
	on(t, func(b *bench) {
		b.env["LIVE"], b.env["LIVE_K3S"], b.env["LIVE_FILES"], b.env["LIVE_OWN_ADDRESS"] = what, filepath.Join(files, "k3s"), files, ownAddress
		do(b)
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			b.Errorf("left of SSH key and kubeconfig: %v, %v", left, err)
		}
	})
}

// az is the Azure CLI of somebody who is logged in.
func (b *bench) az(_ context.Context, args ...string) error {
	b.Helper()
	if b.cli != nil {
		if err := b.cli(args); err != nil {
			return err
		}
	}
	if args[0] != "storage" {
		return nil
	}
	at := slices.Index(args, "--source")
	files, err := os.ReadDir(args[at+1])
	for _, f := range files {
		b.uploaded = append(b.uploaded, f.Name())
	}
	return err
}

// rows are a report's that claims are in, each of which has to be one of the page.
func (b *bench) rows(page string) (rows []string) {
	b.Helper()
	notYet, err := os.ReadFile("../../docs/explanation/not-yet-met.md")
	if err != nil {
		b.Fatal(err)
	}
	_, table, _ := strings.Cut(page, "| claim of not-yet-met.md | check | Uniform |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.SplitSeq(table, "\n") {
		if claim, _, _ := strings.Cut(row[min(2, len(row)):], " | "); strings.HasPrefix(row, "| ") {
			rows = append(rows, row)
			if !strings.Contains(string(notYet), "\n| "+claim) {
				b.Errorf("not-yet-met.md has no row that begins with %q", claim)
			}
		}
	}
	return rows
}

// A server that never boots: what went well until then is reported, and all is removed.
func TestClusterThatDoesNotBoot(t *testing.T) {
	for what, c := range map[string]struct {
		claims int
		plan   string
	}{
		"publish": {7, "a server and 2 agents at most"},
		"full":    {9, "a server and 4 agents at most"},
	} {
		t.Run(what, func(t *testing.T) {
			onCluster(t, what, func(b *bench) {
				var tags string
				b.after = func(r *http.Request, resp *http.Response) {
					if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/resourceGroups/ortet-live-one-storage") {
						text, err := io.ReadAll(resp.Body)
						if err != nil {
							b.Fatal(err)
						}
						tags, resp.Body = string(text), io.NopCloser(bytes.NewReader(text))
					}
					if strings.HasSuffix(r.URL.Path, "/virtualMachines/server") && resp.StatusCode == http.StatusOK { // what it reports is in other answers too
						text, err := io.ReadAll(resp.Body)
						if err != nil {
							b.Fatal(err)
						}
						text = bytes.Replace(text, []byte(`"tags":{`), []byte(`"tags":{"ortet.io_boot":"westeurope",`), 1)
						resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
					}
				}
				b.run(b.Context(), live.ExitDiffers, "resource group ortet-live-one-compute and ortet-live-one-storage in westeurope", c.plan,
					"a NAT gateway", " instances x 12h0m0s x ", "$ ortet cluster plan", "$ ortet cluster down --all", "nothing of the run is left")
				b.left()
				page := b.file(what + ".md")
				t.Logf("%s\n%s", &b.out, page)
				for _, want := range []string{"| check | Uniform |\n", "| Plan | as expected |", "| Up | differs |", "| Join | not reached |",
					"| Plan | as expected |\n", "- Up, Uniform: answered ortet cluster up: exit code"} {
					if !strings.Contains(page, want) {
						b.Errorf("report lacks %q:\n%s", want, page)
					}
				}
				if rows := b.rows(page); len(rows) != c.claims {
					b.Errorf("report has claims %q, want %d", rows, c.claims)
				}
				if want := []string{"images.tar", "k3s", "ortet", "ortet-node"}; !slices.Equal(b.uploaded, want) {
					b.Errorf("uploaded %v, want %v", b.uploaded, want)
				}
				for _, tag := range []string{"ortet.io_live-run", "ortet.io_live-owner", "ortet.io_live-end"} {
					if !strings.Contains(tags, tag) {
						b.Errorf("the storage group lacks tag %s: %s", tag, tags)
					}
				}
				for _, word := range []string{ownAddress, azsim.DefaultSubscription, "janedoe", "jane.doe", "aaaac3nzac1lzdi1nte5"} {
					if strings.Contains(strings.ToLower(page+b.file(what+".json")), word) {
						b.Errorf("published: %s", word)
					}
				}
			})
		})
	}
}

// Ctrl-C at each step that a machine without a boot comes to.
func TestClusterInterrupted(t *testing.T) {
	deployment := func(group string) func(*http.Request) bool {
		return func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/ortet-live-one-"+group+"/providers/Microsoft.Resources/deployments/")
		}
	}
	uploaded := false
	for name, at := range map[string]func(*http.Request) bool{
		"second group": func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/ortet-live-one-storage")
		},
		"what-if": func(r *http.Request) bool { return strings.HasSuffix(strings.ToLower(r.URL.Path), "/whatif") },
		"storage": deployment("storage"),
		"compute": deployment("compute"),
		"upload":  nil,
		"boot": func(r *http.Request) bool {
			return uploaded && strings.HasSuffix(r.URL.Path, "/virtualMachines/server")
		},
	} {
		t.Run(name, func(t *testing.T) {
			onCluster(t, "publish", func(b *bench) {
				ctx, interrupt := context.WithCancel(b.Context())
				defer interrupt()
				met := false
				uploaded = false
				b.before = func(r *http.Request) error {
					if at != nil && at(r) {
						met = true
						interrupt()
					}
					return nil
				}
				b.cli = func(args []string) error {
					if at == nil && args[0] == "storage" {
						met = true
						interrupt()
					}
					uploaded = uploaded || args[0] == "storage"
					return ctx.Err()
				}
				ends := "nothing of it is left in Azure"
				if name == "second group" {
					ends = "NOT RUN: create resource group"
				}
				b.run(ctx, live.ExitFailed, ends)
				b.left()
				b.leftGrants()
				if !met {
					b.Errorf("was not interrupted:\n%s", &b.out)
				}
			})
		})
	}
}

// A process that was killed leaves two groups; make live-clean deletes both, with the role
// assignments in them.
func TestClusterKilledThenClean(t *testing.T) {
	onCluster(t, "full", func(b *bench) {
		var dead atomic.Bool
		b.before = func(r *http.Request) error {
			if dead.Load() {
				return errors.New("killed")
			}
			return nil
		}
		b.cli = func(args []string) error {
			dead.Store(args[0] == "storage")
			return nil
		}
		b.run(b.Context(), live.ExitFailed, "LEFT: cannot delete resource group ortet-live-one-compute", "az group delete --name ortet-live-one-storage",
			"LIVE_NAME=ortet-live-one make live-clean")
		b.before = nil
		time.Sleep(time.Hour) // what Azure deploys goes on
		b.run(b.Context(), live.ExitFailed, "NOT RUN: resource group ortet-live-one-compute is of a run of janedoe until")
		b.clean(live.ExitDone, "deleting role assignment /subscriptions/", "deleting resource group ortet-live-one-compute\ndelete resource group ortet-live-one-storage", "2 resource groups")
		b.left()
		b.leftGrants()
	})
}

// A watched is the transport of a run, whose writes are in its own groups alone.
type watched struct {
	transport
	run string
}

func (w watched) Do(r *http.Request) (*http.Response, error) {
	group := strings.ToLower(r.URL.Path)
	if r.Method != http.MethodGet && strings.Contains(group, "/resourcegroups/ortet-live-") && !strings.Contains(group, "/resourcegroups/"+w.run+"-") {
		w.b.Errorf("%s: %s %s", w.run, r.Method, r.URL.Path)
	}
	return w.transport.Do(r)
}

// Two runs at the same time: each goes as far as alone, and writes to its own groups.
func TestClustersBeside(t *testing.T) {
	onCluster(t, "publish", func(b *bench) {
		ctx, end := context.WithTimeout(b.Context(), 30*time.Minute) // machines do not boot
		defer end()
		var runs sync.WaitGroup
		outs := map[string]*bytes.Buffer{"publish": {}, "full": {}}
		for what, out := range outs {
			p := b.program()
			p.Out, p.Suffix = out, what
			load := p.Load
			p.Load = func(ctx context.Context) (credential.Credentials, error) {
				who, err := load(ctx)
				who.Transport = watched{transport{b}, "ortet-live-" + what}
				return who, err
			}
			p.Getenv = func(name string) string {
				return cmp.Or(map[string]string{"LIVE": what, "LIVE_NAME": "ortet-live-" + what}[name], b.env[name])
			}
			runs.Go(func() {
				if code := p.Run(ctx); code != live.ExitFailed {
					b.Errorf("%s: exit code %d", what, code)
				}
			})
		}
		runs.Wait()
		b.left()
		for what, out := range outs {
			page := b.file(what + ".md")
			if !strings.HasPrefix(page, "# LIVE="+what+" ") || !strings.Contains(page, "| Plan | as expected |\n| Up | not reached |") || !strings.Contains(out.String(), "nothing of it is left") {
				b.Errorf("%s:\n%s\n%s", what, out, page)
			}
		}
	})
}

// An answer that is not as expected is in the report beside what was expected.
func TestClusterDiffers(t *testing.T) {
	onCluster(t, "publish", func(b *bench) {
		if err := b.azure.AddFault(azsim.Fault{Method: "POST", Path: "/whatIf$", Effect: azsim.EffectError, Status: 400, Code: "InvalidTemplate", Message: "The template is not valid."}); err != nil {
			b.Fatal(err)
		}
		b.run(b.Context(), live.ExitDiffers, "nothing of the run is left")
		b.left()
		page := b.file("publish.md")
		for _, want := range []string{"| Plan | differs |\n| Up | not reached |", "| Templates: what-if | Plan | not reached |",
			"- Plan, Uniform: answered ortet cluster plan: exit code 1: ", "InvalidTemplate", "; expected exit code 0\n"} {
			if !strings.Contains(page, want) {
				b.Errorf("report lacks %q:\n%s", want, page)
			}
		}
		t.Log(page)
	})
}

// Log-ins that end in the middle: what is left is named, with the command.
func TestClusterLogInEnds(t *testing.T) {
	onCluster(t, "publish", func(b *bench) {
		b.cli = func(args []string) error {
			if args[0] == "storage" {
				b.loggedOut.Store(true)
				time.Sleep(2 * time.Hour) // no token that was got lasts as long
			}
			return nil
		}
		b.run(b.Context(), live.ExitFailed, "AADSTS700082", "Up         not reached", "LEFT: cannot delete resource group ortet-live-one-compute", "LIVE_NAME=ortet-live-one make live-clean")
		b.loggedOut.Store(false)
		b.clean(live.ExitDone)
		b.left()
		b.leftGrants()
	})
}

func TestClusterRefusals(t *testing.T) {
	t.Run("group of others", func(t *testing.T) {
		onCluster(t, "publish", func(b *bench) {
			if err := b.azure.Create(b.Context(), &azsim.Spec{ResourceGroups: []azsim.GroupSpec{{Name: "ortet-live-one-storage"}}}); err != nil {
				b.Fatal(err)
			}
			b.before = func(r *http.Request) error {
				if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "ortet-live-one") {
					b.Errorf("%s %s", r.Method, r.URL.Path)
				}
				return nil
			}
			b.run(b.Context(), live.ExitFailed, "NOT RUN: resource group ortet-live-one-storage exists and is not of make live; nothing in it was touched")
		})
	})
	t.Run("deletion", func(t *testing.T) {
		onCluster(t, "publish", func(b *bench) {
			if err := b.azure.AddFault(azsim.Fault{Name: "lock", Method: "DELETE", Path: "/resourceGroups/ortet-live-one-storage$", Effect: azsim.EffectError, Status: 409, Code: "ScopeLocked"}); err != nil {
				b.Fatal(err)
			}
			b.run(b.Context(), live.ExitFailed, "LEFT: cannot delete resource group ortet-live-one-storage", "ScopeLocked")
			b.azure.RemoveFault("lock")
			b.clean(live.ExitDone, "1 resource groups")
			b.left()
		})
	})
	t.Run("public addresses, and tags of a policy", func(t *testing.T) {
		onCluster(t, "publish", func(b *bench) {
			b.deny("/publicIPAddresses/")
			b.before = func(r *http.Request) error {
				if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/resourceGroups/ortet-live-one-") || strings.Contains(r.URL.Path, "/providers/") {
					return nil
				}
				text, err := io.ReadAll(r.Body)
				text = bytes.Replace(text, []byte(`"tags":{`), []byte(`"tags":{"costCenter":"4711",`), 1)
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
				return err
			}
			b.run(b.Context(), live.ExitDiffers, "RequestDisallowedByPolicy", "nothing of the run is left")
			b.left()
		})
	})
	for name, c := range map[string]struct {
		set  map[string]string
		do   func(b *bench)
		want string
	}{
		"no k3s":        {set: map[string]string{"LIVE_K3S": ""}, want: "NOT RUN: LIVE_K3S and LIVE_OWN_ADDRESS are needed"},
		"absent file":   {set: map[string]string{"LIVE_K3S": "/absent"}, want: "cannot copy artifact k3s"},
		"no address":    {set: map[string]string{"LIVE_OWN_ADDRESS": "home"}, want: "see LIVE_OWN_ADDRESS"},
		"check":         {set: map[string]string{"LIVE_CHECK": "Image"}, want: "LIVE_CHECK=Image: LIVE=contract alone has checks"},
		"quota":         {do: func(b *bench) { b.azure.Quota = map[string]int{"cores": 4} }, want: "0 of 4 vCPUs used, 10 needed"},
		"region":        {set: map[string]string{"LIVE_REGION": "nowhere"}, want: "by LIVE_REGION"},
		"not confirmed": {set: map[string]string{"LIVE_YES": "", "answer": "no\n"}, want: "NOT RUN: not confirmed"},
		"no az":         {do: func(b *bench) { b.cli = func([]string) error { return errors.New("exit status 1") } }, want: "az login"},
		"no programs":   {set: map[string]string{"LIVE_FILES": "/absent"}, want: "cannot copy artifact"},
	} {
		t.Run(name, func(t *testing.T) {
			onCluster(t, "full", func(b *bench) {
				for k, v := range c.set {
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
}

// login is a log-in that may end.
type login struct {
	azcore.TokenCredential
	ended *atomic.Bool
}

func (l login) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if l.ended.Load() {
		return azcore.AccessToken{}, &fleet.Error{Op: "get a token", Kind: fleet.KindUnauthenticated, Err: fmt.Errorf("AADSTS700082: the refresh token has expired")}
	}
	return l.TokenCredential.GetToken(ctx, o)
}

//go:build e2e && linux

package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure/credential"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/live"
)

// TestElasticLive plays LIVE=publish and LIVE=full of make live. Both go to their end as
// expected but for what the lab's k3s lacks, and leave nothing.
func TestElasticLive(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Minute)
	defer cancel()
	w := newWorld(ctx, t)
	files := w.path("live")
	err := os.Mkdir(files, 0o700)
	for name, from := range map[string]string{"ortet": filepath.Join(w.bin, "ortet"), "ortet-node": filepath.Join(w.bin, "ortet-node"), "images.tar": w.path("images.tar")} {
		err = errors.Join(err, os.Link(from, filepath.Join(files, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	for suffix, what := range map[string]string{"pub": "publish", "full": "full"} {
		w.step("LIVE=" + what)
		env := map[string]string{
			"LIVE": what, "LIVE_YES": "1", "LIVE_NAME": "ortet-live-" + what, "LIVE_OUT": w.path("report-" + what),
			"LIVE_K3S": w.path("k3s"), "LIVE_FILES": files, "LIVE_OWN_ADDRESS": "127.0.0.0/8",
		}
		var out bytes.Buffer
		p := live.Program{Getenv: func(name string) string { return env[name] }, In: strings.NewReader(""), Out: io.MultiWriter(&out, testWriter{t}), Now: time.Now, Suffix: suffix, Az: w.az,
			Load: func(ctx context.Context) (credential.Credentials, error) {
				return credential.Load(ctx, credential.Config{File: w.azure.Endpoint.AzureConfig, CAFile: w.azure.Endpoint.CAFile,
					EnvironmentFile: filepath.Join(w.azure.Dir, "azurestackcloud.json")})
			}}
		code := p.Run(ctx)
		page, err := os.ReadFile(filepath.Join(env["LIVE_OUT"], what+".md"))
		t.Logf("%s\n%v", page, err)
		if code != live.ExitDone || !strings.Contains(out.String(), "nothing of the run is left") {
			t.Fatalf("LIVE=%s: exit code %d", what, code)
		}
		for row := range strings.SplitSeq(string(page), "\n") {
			if strings.Contains(row, live.NotReached) && !strings.HasPrefix(row, "| Released k3s") {
				t.Errorf("LIVE=%s: %s", what, row)
			}
		}
		w.wantNoGroups()
	}
}

// az is the Azure CLI, whose uploads go to the folder of the share.
func (w *world) az(_ context.Context, args ...string) error {
	if args[0] != "storage" {
		return nil
	}
	of := func(flag string) string { return args[slices.Index(args, flag)+1] }
	share := w.path("azure", "machine", "shares", of("--account-name"), of("--destination"), of("--destination-path"))
	return os.CopyFS(share, os.DirFS(of("--source")))
}

func (w *world) wantNoGroups() {
	w.t.Helper()
	arm, err := w.azure.Resources()
	if err != nil {
		w.t.Fatal(err)
	}
	err = arm.List(w.ctx, fleet.ResourceID("/subscriptions/"+w.azure.Endpoint.Subscription+"/resourcegroups"), "2021-04-01", func(item json.RawMessage) error {
		var g struct{ Name string }
		err := json.Unmarshal(item, &g)
		if strings.HasPrefix(g.Name, "ortet-live") {
			w.t.Errorf("left: resource group %s", g.Name)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

package main_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const publishedVersion = "v1.2.3"

// command runs one of this project's commands, and returns what it printed.
func command(t *testing.T, args ...string) (out, complaint string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = "../.."
	// No credentials of this user's.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "DOCKER_CONFIG="+t.TempDir(), "REGISTRY_AUTH_FILE=", "XDG_RUNTIME_DIR=")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, complaint, err := command(t, args...)
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", args, err, out, complaint)
	}
	return out
}

// tools has the three commands, as a release uses them, and programs to pack.
type tools string

func buildTools(t *testing.T) tools {
	t.Helper()
	folder := t.TempDir()
	must(t, "go", "build", "-o", folder+"/", "./hack/image", "./hack/charts", "./hack/publish")
	for _, arch := range []string{"amd64", "arm64"} {
		program := filepath.Join(folder, arch, "ortet")
		must(t, "env", "GOOS=linux", "GOARCH="+arch, "go", "build", "-o", program, "./hack/image/testdata/program")
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program+"-node", text, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return tools(folder)
}

// dist makes what a release for the registry has, and returns its folder and the image.
func (c tools) dist(t *testing.T, registry, version string) (folder, image string) {
	t.Helper()
	folder = t.TempDir()
	out := must(t, string(c)+"/image", "-layout", filepath.Join(folder, "ortet-image_"+version+".tar"), "-name", registry+"/ortet", "-version", version,
		"linux/amd64="+string(c)+"/amd64", "linux/arm64="+string(c)+"/arm64")
	image, rest, _ := strings.Cut(out, "\n")
	if rest != "" {
		t.Fatalf("hack/image printed more than a line: %q", out)
	}
	must(t, string(c)+"/charts", "-out", folder, "-version", version, "-image", image, "charts/ortet", "charts/vmss-prototype")
	return folder, image
}

func (c tools) publish(t *testing.T, from, registry string) (out, complaint string, err error) {
	t.Helper()
	return command(t, string(c)+"/publish", "-from", from, "-registry", registry)
}

// refused fails unless the command refuses, prints no result and says all of that.
func (c tools) refused(t *testing.T, from, registry string, says ...string) {
	t.Helper()
	out, complaint, err := c.publish(t, from, registry)
	for _, want := range says {
		if err == nil || out != "" || !strings.Contains(complaint, want) {
			t.Errorf("err %v, want a refusal that says %q; printed %q:\n%s", err, want, out, complaint)
		}
	}
}

// writes counts requests that change a registry.
type writes struct {
	http.Handler
	manifests, others atomic.Int32
}

func (w *writes) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
		w.manifests.Add(1)
	} else if r.Method == http.MethodPut || r.Method == http.MethodPatch {
		w.others.Add(1)
	}
	w.Handler.ServeHTTP(response, r)
}

func serve(t *testing.T, h http.Handler) (address string, seen *writes) {
	t.Helper()
	seen = &writes{Handler: h}
	server := httptest.NewServer(seen)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), seen
}

func emptyRegistry() http.Handler { return registry.New(registry.Logger(log.New(io.Discard, "", 0))) }

func TestPublish(t *testing.T) {
	c := buildTools(t)
	host, seen := serve(t, emptyRegistry())
	target := host + "/team"
	dist, image := c.dist(t, target, publishedVersion)
	out, complaint, err := c.publish(t, dist, target)
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, complaint)
	}
	digest := strings.TrimPrefix(image, target+"/ortet@")
	lines := regexp.MustCompile(`^` + regexp.QuoteMeta(target+"/ortet:v1.2.3@"+digest) + `
` + regexp.QuoteMeta(target) + `/charts/ortet:1\.2\.3@sha256:[0-9a-f]{64}
` + regexp.QuoteMeta(target) + `/charts/vmss-prototype:1\.2\.3@sha256:[0-9a-f]{64}
$`)
	if !lines.MatchString(out) {
		t.Errorf("printed\n%s", out)
	}

	pulled, err := remote.Index(parse(t, image), remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := pulled.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	platforms := ""
	for _, m := range manifest.Manifests {
		platforms += m.Platform.String() + " "
		image, err := pulled.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if layers, err := image.Layers(); err != nil || len(layers) != 1 {
			t.Errorf("%s has the layers %v (%v)", m.Platform, layers, err)
		}
	}
	if platforms != "linux/amd64 linux/arm64 " {
		t.Errorf("the index has %s", platforms)
	}
	for _, chart := range []string{"ortet", "vmss-prototype"} {
		pulled, err := remote.Image(parse(t, target+"/charts/"+chart+":1.2.3"), remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := pulled.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		config, err := pulled.RawConfigFile()
		if err != nil || !strings.Contains(string(config), `"name":"`+chart+`"`) || manifest.Config.MediaType != "application/vnd.cncf.helm.config.v1+json" {
			t.Errorf("%s: config %s is %s (%v)", chart, manifest.Config.MediaType, config, err)
		}
		layers, err := pulled.Layers()
		if err != nil || len(layers) != 1 || manifest.Layers[0].MediaType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" {
			t.Fatalf("%s has the layers %+v (%v)", chart, manifest.Layers, err)
		}
		packed, err := layers[0].Compressed()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(packed)
		if want, missing := os.ReadFile(filepath.Join(dist, chart+"-1.2.3.tgz")); err != nil || missing != nil || string(got) != string(want) {
			t.Errorf("%s in the registry is not the one of dist (%v, %v)", chart, err, missing)
		}
	}

	before := seen.manifests.Load() + seen.others.Load()
	again, complaint, err := c.publish(t, dist, target)
	if want := strings.ReplaceAll(out, "\n", " (was there)\n"); err != nil || again != want {
		t.Errorf("the second time: %v, printed\n%s%s", err, again, complaint)
	}
	// Another build: its programs have another content.
	must(t, "env", "GOOS=linux", "GOARCH=arm64", "go", "build", "-o", string(c)+"/arm64/ortet", "./hack/publish/testdata/program")
	other, _ := c.dist(t, target, publishedVersion)
	c.refused(t, other, target, "nothing was pushed", "/ortet:v1.2.3", "/charts/ortet:1.2.3", "/charts/vmss-prototype:1.2.3", "the tag exists with "+digest, "release under another version")
	if after := seen.manifests.Load() + seen.others.Load(); after != before {
		t.Errorf("%d requests changed the registry", after-before)
	}

	t.Run("another registry", func(t *testing.T) {
		t.Parallel()
		c.refused(t, dist, host+"/elsewhere", "made for "+target+"/ortet, and programs and charts name the image by its registry", "make release REGISTRY="+host+"/elsewhere")
	})
	t.Run("no registry", func(t *testing.T) {
		t.Parallel()
		c.refused(t, dist, "", "make publish REGISTRY=")
	})
	t.Run("nothing released", func(t *testing.T) {
		t.Parallel()
		c.refused(t, t.TempDir(), target, "no image in ", "run make release REGISTRY="+target)
	})
	t.Run("charts of another image", func(t *testing.T) {
		t.Parallel()
		mixed, _ := c.dist(t, target, "v1.2.4")
		must(t, string(c)+"/charts", "-out", mixed, "-version", "v1.2.4", "charts/ortet")
		c.refused(t, mixed, target, `its image is "", and that of `, "make release REGISTRY="+target)
	})
	t.Run("a damaged image", func(t *testing.T) {
		t.Parallel()
		archive := filepath.Join(other, "ortet-image_v1.2.3.tar")
		text, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		text[2048] ^= 1
		if err := os.WriteFile(archive, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c.refused(t, other, target, "read "+archive, "make release REGISTRY="+target)
	})

	t.Run("registries that refuse", func(t *testing.T) {
		t.Parallel()
		for _, r := range []struct {
			what    string
			handler http.HandlerFunc
			says    []string
		}{
			{"no credentials", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			}, []string{"refused the credentials or has none", "401", "docker login HOST or podman login HOST"}},
			{"may read only", func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					http.Error(w, `{"errors":[{"code":"DENIED","message":"read-only"}]}`, http.StatusForbidden)
					return
				}
				emptyRegistry().ServeHTTP(w, r)
			}, []string{"nothing was pushed", "does not allow this account to push", "read-only", "grant push on team/charts/ortet"}},
		} {
			t.Run(r.what, func(t *testing.T) {
				t.Parallel()
				host, seen := serve(t, r.handler)
				dist, _ := c.dist(t, host+"/team", publishedVersion)
				for i := range r.says {
					r.says[i] = strings.ReplaceAll(r.says[i], "HOST", host)
				}
				c.refused(t, dist, host+"/team", r.says...)
				if seen.manifests.Load()+seen.others.Load() > 0 {
					t.Error("something was pushed")
				}
			})
		}
		t.Run("no answer", func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(nil)
			host := strings.TrimPrefix(server.URL, "http://")
			server.Close()
			dist, _ := c.dist(t, host, publishedVersion)
			c.refused(t, dist, host, "connection refused", "check the name of the registry")
		})
	})
}

func parse(t *testing.T, reference string) name.Reference {
	t.Helper()
	r, err := name.ParseReference(reference, name.StrictValidation)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

func TestVersions(t *testing.T) {
	for described, want := range map[string]versions{
		"v0.1.0":                       {"v0.1.0", "0.1.0", true},
		"v0.2.0-rc.1":                  {"v0.2.0-rc.1", "0.2.0-rc.1", true},
		"v0.1.0-5-gabcdef012345":       {"v0.1.0-5-gabcdef012345", "0.1.1-dev.5.gabcdef012345", false},
		"v0.2.0-rc.1-12-gabcdef012345": {"v0.2.0-rc.1-12-gabcdef012345", "0.2.0-rc.1.dev.12.gabcdef012345", false},
		"012345abcdef":                 {"012345abcdef", "0.0.0-dev.g012345abcdef", false},
		"v1":                           {"v1", "0.0.0-dev.gv1", false},
		"v1-3-gabcdef012345":           {"v1-3-gabcdef012345", "0.0.0-dev.3.gabcdef012345", false},
	} {
		if got := versionOf(described); got != want {
			t.Errorf("%s: %+v, want %+v", described, got, want)
		}
	}
}

// A checkout with changes is refused, with their names, before anything is written.
func TestDirtyTree(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "First")
	if err := os.WriteFile(filepath.Join(root, "new.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := release{root: root, say: io.Discard}
	if err := r.make(t.Context(), allPlatforms); err == nil || !strings.Contains(err.Error(), "new.txt") {
		t.Errorf("with a new file: %v", err)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 2 {
		t.Errorf("it left %v, %v", entries, err)
	}
}

func TestPlatforms(t *testing.T) {
	for _, c := range []struct{ names, problem string }{
		{"linux/amd64 plan9/amd64", "plan9/amd64"},
		{"darwin/arm64", "no linux"},
	} {
		if _, err := parsePlatforms(strings.Fields(c.names)); err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %v, want %q", c.names, err, c.problem)
		}
	}
}

// sample is a release of the checkout's own files with small programs in place of
// Ortet's: what it packs is the same but for those.
func sample(t *testing.T) *release {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	r := &release{
		root: root, say: t.Output(), work: work, dist: filepath.Join(work, "dist"), commit: time.Unix(1_700_000_000, 0).UTC(),
		version: versionOf("v0.1.0"), download: "https://example.com/v0.1.0",
	}
	if err := os.Mkdir(r.dist, 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

func samplePackage(t *testing.T, r *release, format string) string {
	t.Helper()
	content := legal("ortet-node", []entry{{"LICENSE", 0o644, []byte("licence\n")}, {"THIRD_PARTY_NOTICES", 0o644, []byte("notices\n")}})
	files, err := r.agentFiles()
	if err != nil {
		t.Fatal(err)
	}
	info, placed := r.agentLayout(platform{"linux", "amd64"}, append(content, file(packedPath, 0o755, []byte("#!/bin/sh\n"))), files)
	if err := r.writePackage(platform{"linux", "amd64"}, format, *info, placed); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"deb": r.path("ortet-node_%s_amd64.deb"), "rpm": r.path("ortet-node-%s-1.x86_64.rpm")}[format]
}

// Installing the package puts the units where systemd finds them, enables none, and
// has no drop-in where it would act.
func TestAgentPackage(t *testing.T) {
	r := sample(t)
	listed := map[string][]byte{}
	for _, c := range []struct{ format, tool, flag string }{{"deb", "dpkg-deb", "-c"}, {"rpm", "rpm", "-qpl"}} {
		first, second := samplePackage(t, r, c.format), samplePackage(t, sample(t), c.format)
		if a, b := content(t, first), content(t, second); !bytes.Equal(a, b) {
			t.Errorf("two packages of the same files differ: %s", c.format)
		}
		if _, err := exec.LookPath(c.tool); err != nil {
			t.Logf("NOT TESTED with %s: it is not installed", c.tool)
			continue
		}
		out, err := exec.CommandContext(t.Context(), c.tool, c.flag, first).Output()
		if err != nil {
			t.Fatalf("%s: %v", c.tool, err)
		}
		listed[c.format] = out
	}
	for format, list := range listed {
		for _, name := range append([]string{
			"/usr/bin/ortet-node", "/etc/ortet/ortet-metadata-guard.nft", "/usr/share/ortet-node/systemd/kubelet.service.d/20-ortet.conf",
		}, prefixed("/usr/lib/systemd/system/", agentUnits)...) {
			if !bytes.Contains(list, []byte(name+"\n")) {
				t.Errorf("%s lacks %s:\n%s", format, name, list)
			}
		}
		for _, name := range []string{"/etc/systemd/", ".wants/", "/usr/lib/systemd/system/kubelet.service.d", "/usr/local"} {
			if bytes.Contains(list, []byte(name)) {
				t.Errorf("%s has %s:\n%s", format, name, list)
			}
		}
	}
}

// The units of a package run the program where the package has it.
func TestAgentPackageUnitsRunItsProgram(t *testing.T) {
	r := sample(t)
	files, err := r.agentFiles()
	if err != nil {
		t.Fatal(err)
	}
	_, placed := r.agentLayout(platform{"linux", "amd64"}, nil, files)
	runs := 0
	for _, p := range placed {
		if bytes.Contains(p.content, []byte("/usr/local/bin/ortet-node")) {
			t.Errorf("%s names a program in /usr/local/bin", p.name)
		}
		if strings.HasSuffix(p.name, ".service") && bytes.Contains(p.content, []byte("=/usr/bin/ortet-node ")) {
			runs++
		}
	}
	if runs < 8 {
		t.Errorf("%d units run /usr/bin/ortet-node", runs)
	}
}

func prefixed(prefix string, names []string) []string {
	var all []string
	for _, n := range names {
		all = append(all, prefix+n)
	}
	return all
}

// Each unit that runs ortet-node is in its package and runs the program there.
func TestAgentUnits(t *testing.T) {
	units, err := filepath.Glob("../../deploy/systemd/ortet-*.service")
	if err != nil || len(units) == 0 {
		t.Fatalf("no units: %v", err)
	}
	packed := " " + strings.Join(agentUnits, " ") + " "
	for _, unit := range units {
		runs := bytes.Contains(content(t, unit), []byte(agentPath+" "))
		if is := strings.Contains(packed, " "+filepath.Base(unit)+" "); runs && !is {
			t.Errorf("%s runs %s, and is not in its package", unit, agentPath)
		}
	}
}

// The manual is of every command, and of no machine.
func TestManual(t *testing.T) {
	manual, err := writeManual("v0.1.0", time.Unix(1_700_000_000, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, e := range manual {
		names[e.name] = string(e.content)
	}
	for name, has := range map[string]string{
		"man/man1/ortet.1": `"Nov 2023" "Ortet v0.1.0"`, "man/man1/ortet-capture.1": "--image", "completions/ortet.bash": "__start_ortet",
		"completions/_ortet": "#compdef ortet", "completions/ortet.fish": "complete -c ortet", "completions/ortet.ps1": "Register-ArgumentCompleter",
	} {
		if !strings.Contains(names[name], has) {
			t.Errorf("%s lacks %q: %.300s", name, has, names[name])
		}
	}
	if home, err := os.UserHomeDir(); err == nil && len(home) > 1 {
		for name, text := range names {
			if strings.Contains(text, home+"/") {
				t.Errorf("%s names the home folder of who builds", name)
			}
		}
	}
}

// The manifests load as krew loads them, and name each archive by its digest.
func TestManifests(t *testing.T) {
	r := sample(t)
	platforms, err := parsePlatforms(allPlatforms)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range platforms {
		if err := toFile(r.archiveOf(p, "ortet"), func(w io.Writer) error {
			return writeTar(w, []entry{{p.file("ortet"), 0o755, []byte(p.String())}}, r.commit)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.writeManifests(t.Context(), platforms); err != nil {
		t.Fatal(err)
	}
	var plugin index.Plugin
	if err := yaml.UnmarshalStrict(content(t, filepath.Join(r.dist, "ortet.yaml")), &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.Name != "ortet" || plugin.Spec.Version != "v0.1.0" || len(plugin.Spec.Platforms) != len(platforms) {
		t.Fatalf("%+v", plugin)
	}
	for i, p := range plugin.Spec.Platforms {
		archive := r.archiveOf(platforms[i], "ortet")
		if sum, err := checksum(archive); err != nil || p.Sha256 != sum || p.URI != "https://example.com/v0.1.0/"+filepath.Base(archive) || p.Bin != platforms[i].file("ortet") {
			t.Errorf("%s: %+v, %v", platforms[i], p, err)
		}
	}
	formula := filepath.Join(r.dist, "ortet.rb")
	if got := strings.Count(string(content(t, formula)), "sha256 \""); got != 4 {
		t.Errorf("the formula has %d archives, want 4", got)
	}
	if ruby, err := exec.LookPath("ruby"); err != nil {
		t.Log("NOT TESTED with ruby -c: it is not installed")
	} else if out, err := exec.CommandContext(t.Context(), ruby, "-c", formula).CombinedOutput(); err != nil {
		t.Errorf("ruby -c: %v: %s", err, out)
	}

	if err := writeChecksums(r.dist); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sums)
	check.Dir = r.dist
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != len(platforms)+2 {
		t.Errorf("sha256sum --check: %v: %s", err, out)
	}
}

func TestArchive(t *testing.T) {
	var b bytes.Buffer
	at := time.Unix(1_700_000_000, 0).UTC()
	if err := writeTar(&b, []entry{{"ortet", 0o755, []byte("program")}}, at); err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	header, err := tar.NewReader(unpacked).Next()
	if err != nil || header.Name != "ortet" || header.Mode != 0o755 || !header.ModTime.Equal(at) || header.Uid != 0 || header.Uname != "" {
		t.Errorf("%+v, %v", header, err)
	}
}

// Texts that modules share are there once; a module without one fails elsewhere.
func TestNotices(t *testing.T) {
	dir := t.TempDir()
	found := map[string]map[string]bool{}
	for i, text := range []string{"MIT\n", "MIT\r\n", "BSD\n"} {
		path := filepath.Join(dir, fmt.Sprint("LICENSE", i))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		found[fmt.Sprint("example.com/", i, " v1.0.0")] = map[string]bool{path: true}
	}
	text, err := notice("ortet", found)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), "MIT") != 1 || strings.Count(string(text), "BSD") != 1 || strings.Count(string(text), "v1.0.0") != 3 {
		t.Errorf("%s", text)
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

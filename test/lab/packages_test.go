//go:build e2e && linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/machine"
)

// releaseRegistry is where the releases say that their image is; nothing is pushed.
const releaseRegistry = "reg.example.invalid/org"

// TestPackagesOnRealMachines makes two releases of this commit, and installs, upgrades,
// removes and purges their packages on a machine with systemd. It runs the image by the
// machine's containerd, and installs ortet by `go install` from a proxy of files.
func TestPackagesOnRealMachines(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 18*time.Minute)
	defer cancel()
	checkout, dir := clearGround(t, "packages", "machines")
	clone := filepath.Join(dir, "clone")
	host(ctx, t, dir, nil, `git clone -q "$1" clone && cd clone &&
		for n in 1 2; do
			git -c user.name=lab -c user.email=lab@ortet.invalid commit -q --allow-empty -m "Release $n" && git tag "v0.0.$n" &&
			make release REGISTRY="$2" PLATFORMS=linux/amd64 >"../release$n.log" 2>&1 || { tail -5 "../release$n.log" >&2; exit 1; }
			mv dist "../dist$n"
		done`, checkout, releaseRegistry)

	machines, err := machine.New(machine.Config{
		Dir: filepath.Join(dir, "machines"), Images: map[string]string{"*": os.Getenv("ORTET_LAB_IMAGE")},
		Log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := machines.Close(); err != nil {
			t.Error(err)
		}
	})
	c := computer("packages", 1, "#cloud-config\n")
	if err := errors.Join(machines.CreateVolume(ctx, c.OSDisk, azsim.Source{Platform: "debian:debian-12:12-gen2:latest"}), machines.Boot(ctx, c)); err != nil {
		t.Fatal(err)
	}
	sh := func(t *testing.T, script string) string {
		t.Helper()
		out, err := machines.Exec(ctx, c.ID, nil, "sh", "-c", script)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	put := func(n int, name string) {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("dist%d", n), name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := machines.Exec(ctx, c.ID, content, "sh", "-c", "cat >/opt/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 2 {
		put(n+1, fmt.Sprintf("ortet_0.0.%d_amd64.deb", n+1))
		put(n+1, fmt.Sprintf("ortet-node_0.0.%d_amd64.deb", n+1))
	}
	put(2, "ortet-image_0.0.2.tar")
	expect := func(t *testing.T, rows [][2]string) {
		t.Helper()
		for _, row := range rows {
			if got := sh(t, row[0]); got != row[1] {
				t.Errorf("%s: %q, want %q", row[0], got, row[1])
			}
		}
	}

	const enabled = `systemctl list-unit-files 'ortet-*' --state=enabled --plain --no-legend | awk '{print $1}' | paste -sd' '`
	t.Run("installed", func(t *testing.T) {
		sh(t, "dpkg -i /opt/*_0.0.1_amd64.deb")
		expect(t, [][2]string{
			{`ortet version | sed -n 's/^Version: *//p'`, "v0.0.1"},
			{`ortet-node version | grep -o 'v0[0-9.]*' | head -1`, "v0.0.1"},
			{`kubectl-ortet capture n --dry-rum 2>&1 | tail -1`, "See 'kubectl ortet capture --help'."},
			{`ortet capture --help | tr -d ' \n' | grep -c 'default"` + releaseRegistry + `/ortet@sha256:'`, "1"},
			// The machine's dpkg leaves out manual pages.
			{`dpkg -c /opt/ortet_0.0.1_amd64.deb | grep -o 'man1/ortet-capture.1.gz'`, "man1/ortet-capture.1.gz"},
			{`bash -c '. /usr/share/bash-completion/completions/ortet && echo loads'`, "loads"},
			{enabled, ""},
			{`systemctl is-active ortet-config.service ortet-events.service | sort -u`, "inactive"},
			{`stat -c '%U %a' /usr/bin/ortet /usr/bin/ortet-node | sort -u`, "root 755"},
		})
	})
	t.Run("upgraded", func(t *testing.T) {
		sh(t, `systemctl enable -q ortet-report.service && echo '# ours' >>/etc/ortet/ortet-metadata-guard.nft && echo {} >/etc/ortet/join.json && mkdir -p /var/lib/ortet`)
		sh(t, "dpkg -i /opt/*_0.0.2_amd64.deb")
		expect(t, [][2]string{
			{`ortet version | sed -n 's/^Version: *//p'`, "v0.0.2"},
			{`ortet-node version | grep -o 'v0[0-9.]*' | head -1`, "v0.0.2"},
			{`tail -1 /etc/ortet/ortet-metadata-guard.nft`, "# ours"},
			{enabled, "ortet-report.service"},
		})
	})
	t.Run("removed and purged", func(t *testing.T) {
		sh(t, "dpkg -r ortet ortet-node")
		expect(t, [][2]string{
			{`command -v ortet ortet-node kubectl-ortet kubectl_complete-ortet || true`, ""},
			{`systemctl list-unit-files 'ortet-*' --plain --no-legend || true`, ""},
			{`find /etc/systemd/system -name 'ortet-*'`, ""},
			{`tail -1 /etc/ortet/ortet-metadata-guard.nft`, "# ours"},
			{`ls /etc/ortet/join.json`, "/etc/ortet/join.json"},
		})
		sh(t, "dpkg -P ortet ortet-node")
		expect(t, [][2]string{
			{`ls -d /etc/ortet /var/lib/ortet /usr/share/ortet-node 2>/dev/null || true`, ""},
			{`ls -d /usr/local/bin`, "/usr/local/bin"},
			{`dpkg -l 'ortet*' 2>/dev/null | grep -c '^.[^n]' | grep -v 0 || true`, ""},
			{`systemctl list-units --failed --plain --no-legend | grep ortet || true`, ""},
		})
	})
	t.Run("image by containerd", func(t *testing.T) {
		sh(t, "systemctl start containerd && ctr images import /opt/ortet-image_0.0.2.tar")
		name := sh(t, "ctr images list --quiet | grep '^"+releaseRegistry+"/ortet'")
		name, _, _ = strings.Cut(name, "\n")
		if got := sh(t, "ctr run --rm "+name+" lab /ortet version | sed -n 's/^Version: *//p'"); got != "v0.0.2" {
			t.Errorf("ortet of %s is %q, want v0.0.2", name, got)
		}
	})
	t.Run("rpm", func(t *testing.T) {
		if _, err := exec.LookPath("rpm"); err != nil {
			t.Skip("NOT RUN: rpm is not installed on this host")
		}
		got := host(ctx, t, dir, nil, `mkdir root && r="rpm --root $PWD/root" && set -e
			$r -i --nodeps --noscripts dist1/ortet-0.0.1-1.x86_64.rpm dist1/ortet-node-0.0.1-1.x86_64.rpm
			$r -U --nodeps --noscripts dist2/ortet-0.0.2-1.x86_64.rpm dist2/ortet-node-0.0.2-1.x86_64.rpm
			$r -V --nodeps ortet ortet-node
			$r -q ortet ortet-node; root/usr/bin/ortet version | sed -n 's/^Version: *//p'
			$r -e --nodeps --noscripts ortet ortet-node; find root -name '*ortet*' ! -type d`)
		if want := "ortet-0.0.2-1.x86_64\nortet-node-0.0.2-1.x86_64\nv0.0.2"; got != want {
			t.Errorf("rpm prints %q", got)
		}
	})
	t.Run("go install", func(t *testing.T) {
		const path = "github.com/ortet/ortet"
		got := host(ctx, t, clone, []string{"GOFLAGS=-trimpath", "GOSUMDB=off", "GOBIN=" + filepath.Join(dir, "bin")}, `
			v=$PWD/../proxy/`+path+`/@v && mkdir -p "$v" && echo v0.0.2 >"$v/list" && cp go.mod "$v/v0.0.2.mod" &&
			echo '{"Version":"v0.0.2","Time":"2026-01-01T00:00:00Z"}' >"$v/v0.0.2.info" &&
			git archive --format=zip --prefix=`+path+`@v0.0.2/ -o "$v/v0.0.2.zip" v0.0.2 -- . $(git ls-files '*/go.mod' | sed 's,^,:!,; s,/go.mod$,,') &&
			export GOPROXY="file://$PWD/../proxy,file://$(go env GOMODCACHE)/cache/download" && cd .. &&
			go install `+path+`/cmd/ortet@v0.0.2 && bin/ortet version | sed -n 's/^Version: *//p'`)
		if got != "v0.0.2" {
			t.Errorf("what go install made prints version %q", got)
		}
	})
}

// host runs a script on this host, and returns what it prints.
func host(ctx context.Context, t *testing.T, dir string, env []string, script string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

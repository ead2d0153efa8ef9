package bootstrap

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/wire"
)

// script is a journalctl of the test's own.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journalctl")
	// A process that another test starts now would have it open for writing: it could not be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestJournals(t *testing.T) {
	t.Parallel()
	logs := journals(t.Context(), script(t, `for last; do :; done; echo "[1.0] of $last"; printf 'bell \007\n'`), time.Minute, []verdict.Unit{{Name: "a.service"}, {Name: "b.service", Missing: true}})
	var all []string
	for _, l := range logs {
		all = append(all, l.Source+": "+strings.Join(l.Lines, "|"))
	}
	want := "journal kubelet.service: [1.0] of --unit=kubelet.service|bell \njournal containerd.service: [1.0] of --unit=containerd.service|bell \njournal a.service: [1.0] of --unit=a.service|bell \njournal kernel: [1.0] of --dmesg|bell "
	if got := strings.Join(all, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// Where the API server gives us no answer the kubelet's word counts, however long
// ago it gave it.
func TestKubeletBehindAProxy(t *testing.T) {
	t.Parallel()
	var healthy atomic.Bool
	healthy.Store(true)
	s := newAPIServer(t)
	for name, c := range map[string]struct {
		journal string
		outcome wire.Outcome
		reason  string
	}{
		"registered by a way of its own": {`for a; do case $a in --grep=*) echo '[9.1] I1121 kubelet_node_status.go:78] "Successfully registered node" node="pool1000003"';; esac; done`, wire.Succeeded, ""},
		"says nothing of it":             {`for a; do case $a in --unit=kubelet.service) echo '[9.1] I1121 kubelet_node_status.go:75] "Attempting to register node" node="pool1000003"';; esac; done`, wire.Failed, "APIServerRefused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoot(t)
			s.login(r, "system:node:pool1000003")
			s.kubeconfig(r, "https://"+nobody)
			r.write(sentinelPath, "")
			r.write("/etc/systemd/system/kubelet.service", "[Service]\n")
			o := r.options()
			o.Kubelet, o.Settle, o.Grace = KubeletAuto, time.Millisecond, 50*time.Millisecond
			o, err := o.complete()
			if err != nil {
				t.Fatal(err)
			}
			n := newNode(o, identifyNode(o), quiet())
			n.kubelet.address, n.kubelet.within = kubelet(t, &healthy), time.Minute // a busy machine answers late
			n.journalctl = script(t, c.journal)
			if v, err := n.wait(t.Context()); err != nil || v.Outcome != c.outcome || v.Reason != c.reason {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// What cannot be had is no failure: no program, one that fails, one that writes
// without end, one that hangs.
func TestJournalsThatMisbehave(t *testing.T) {
	t.Parallel()
	if logs := journals(t.Context(), "", time.Minute, nil); logs != nil {
		t.Errorf("%v", logs)
	}
	if logs := journals(t.Context(), "/no/journalctl", time.Minute, nil); len(logs) != 0 {
		t.Errorf("%v", logs)
	}
	if logs := journals(t.Context(), script(t, "echo half; exit 3"), time.Minute, nil); len(logs) != 3 {
		t.Errorf("%v", logs)
	}
	l := journal(t.Context(), script(t, "yes 0123456789 | head -c 20000000"), time.Minute, "x", "y")
	if len(l.Lines) == 0 || len(l.Lines) > maxTailRows || !l.Cut {
		t.Errorf("%d lines, cut %v", len(l.Lines), l.Cut)
	}
	begun := time.Now()
	journal(t.Context(), script(t, "sleep 60 & sleep 60"), time.Second, "x", "y")
	if took := time.Since(begun); took > 50*time.Second {
		t.Errorf("a journalctl that hangs held us for %s", took)
	}
}

package simulate

import (
	"path"
	"slices"
	"strings"
	"testing"
	"time"
)

// online are captures of a node that stays in service.
var online = []Story{
	{Name: "online: captured, scaled out, rolled back", Seed: 1, Pool: usual, Asks: []Ask{{Do: "capture", Online: true, Grow: 1}, {Do: "scale out", N: 1}, {Do: "rollback"}}},
	{Name: "online: a budget that never allows an eviction, and a pod without a controller", Seed: 2,
		Pool: with(func(p *Pool) { p.Blocked, p.Unmanaged = true, true }), Asks: []Ask{{Do: "capture", Online: true}}},
	{Name: "online: the donor cordoned and protected by its owners", Seed: 3,
		Pool: with(func(p *Pool) { p.Cordoned, p.Protected, p.ScaleDown = true, true, "true" }), Asks: []Ask{{Do: "capture", Online: true}}},
	{Name: "online: with --deallocate", Seed: 4, Pool: usual, Asks: []Ask{{Do: "capture", Online: true, Deallocate: true, Exit: 3}}, Cannot: "OnlineAndDeallocate"},
	{Name: "online: a disk that cannot be flushed", Seed: 5, Pool: with(func(p *Pool) { p.Disk = "dead" }),
		Asks: []Ask{{Do: "capture", Online: true, Exit: 3}}, Cannot: "DiskRefused"},
	{Name: "online: a disk that dies between inspection and flush", Seed: 5, Pool: with(func(p *Pool) { p.Disk = "dying" }),
		Asks: []Ask{{Do: "capture", Online: true, Exit: 1}}, Cannot: "gave no report within 2m0s"},
	{Name: "online: killed between flush and snapshot", Seed: 6, Pool: usual, Asks: []Ask{{Do: "capture", Online: true}}, Happen: at(putSnapshot, 1, "kill before")},
	{Name: "online: killed after the snapshot was asked for", Seed: 7, Pool: usual, Asks: []Ask{{Do: "capture", Online: true}}, Happen: at(putSnapshot, 1, "kill after")},
	{Name: "online: first while it is in service, then not", Seed: 8, Pool: usual, Asks: []Ask{{Do: "capture", Online: true}, {Do: "capture", Again: true}}},
	{Name: "online: its donor deleted after it has reported", Seed: 4, Pool: usual, Asks: []Ask{{Do: "capture", Online: true}},
		Happen: []Event{{At: putVersion, What: "instance deleted", Target: "donor"}}},
	{Name: "online: its donor deleted before it has reported", Seed: 4, Pool: usual, Asks: []Ask{{Do: "capture", Online: true, Once: true, Exit: 1}},
		Cannot: "its Node was deleted before it showed that the node ran while its disk was copied",
		Happen: []Event{{At: putSnapshot, What: "kubelets silent"}, {At: "azure PUT disks/disk_pool1_work", What: "instance deleted", Target: "donor"}}},
	{Name: "online: killed after the donor has reported", Seed: 5, Pool: usual, Asks: []Ask{{Do: "capture", Online: true}}, Happen: at(putVersion, 1, "kill before")},
	{Name: "online: killed before the donor has reported", Seed: 5, Pool: usual, Asks: []Ask{{Do: "capture", Online: true}}, Happen: at("azure PUT disks/disk_pool1_work", 1, "kill before")},
	{Name: "online: Azure is away between flush and snapshot", Seed: 6, Pool: usual, Asks: []Ask{{Do: "capture", Online: true}}, Happen: at(putSnapshot, 1, "away for 20 minutes")},
	{Name: "online: with a canary", Seed: 9, Pool: usual, Asks: []Ask{{Do: "capture", Online: true, Canary: 1}}},
}

// TestOutcomeDonorThatBootsIsNotCopied: a donor that boots while its disk is copied, and whose Node
// shows the old boot for minutes, gives no version.
func TestOutcomeDonorThatBootsIsNotCopied(t *testing.T) {
	for _, request := range []string{putSnapshot, "azure GET snapshots/snapshot_pool1"} {
		s := Story{Name: "online: the donor boots at " + request + ", and its Node shows it late", Seed: 3, Pool: with(func(p *Pool) { p.SlowBoot = 3 * time.Minute }),
			Asks: []Ask{{Do: "capture", Online: true, Once: true, Exit: 1}}, Cannot: "the donor was stopped, booted or given another disk while its disk was copied",
			Happen: []Event{{At: request, What: "instance restarted", Target: "donor"}}}
		if request != putSnapshot {
			s.Happen[0].N = 3 // once it exists
		}
		for _, s := range []Story{s, onFlexible(s)} {
			if r := play(t, s); len(r.violations)+len(r.missed) > 0 {
				t.Error(explain(s, r))
			}
		}
	}
}

// TestOutcomeSilentDonorIsNotCopied: a kubelet that never reports again shows nothing.
func TestOutcomeSilentDonorIsNotCopied(t *testing.T) {
	s := Story{Name: "online: the donor's kubelet is silent", Seed: 3, Pool: usual, Asks: []Ask{{Do: "capture", Online: true, Once: true, Exit: 1}},
		Cannot: "node pool1000000 has not reported since its disk was copied", Happen: at(putSnapshot, 1, "kubelets silent")}
	if r := play(t, s); len(r.violations)+len(r.missed) > 0 {
		t.Error(explain(s, r))
	}
}

func (p *process) online() bool { return p.ask.Do == "capture" && p.ask.Online }

// captures reports whether a node is captured online now.
func (w *world) captures(node string) bool {
	var all []*process
	w.locked(func() { all = slices.Clone(w.processes) })
	return slices.ContainsFunc(all, func(p *process) bool {
		select {
		case <-p.done:
			return false
		default:
			return p.online() && node == w.donorOf(p.ask)
		}
	})
}

// checkOnline: a donor that is captured online is not stopped, and its disk is flushed just
// before it is copied.
func (w *world) checkOnline(p *process, req request) {
	if !p.online() {
		return
	}
	about := req.about()
	donor := w.computerOf(w.donorOf(p.ask))
	switch verb := low(path.Base(about)); verb {
	case "poweroff", "deallocate", "start", "restart":
		if donor != nil && strings.HasSuffix(low(donor.ResourceID), "/"+low(path.Dir(about))) {
			w.broken(19, "%s sends %s, which is its donor", p.name, req.name)
		}
	}
	var at time.Time
	w.locked(func() { at = w.flushedAt })
	if req.name == putSnapshot && time.Since(at) > 2*time.Minute {
		w.broken(19, "%s copies the disk of its donor, which was flushed at %s", p.name, at)
	}
}

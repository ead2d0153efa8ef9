package simulate

import (
	"path"
	"slices"
	"strings"
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
	{Name: "online: its donor deleted after the snapshot", Seed: 4, Pool: usual, Asks: []Ask{{Do: "capture", Online: true}},
		Happen: []Event{{At: "azure PUT disks/disk_pool1_work", What: "instance deleted", Target: "donor"}}},
	{Name: "online: with a canary", Seed: 9, Pool: usual, Asks: []Ask{{Do: "capture", Online: true, Canary: 1}}},
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
			return p.online() && node == w.nodeName(p.ask.Node)
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
	donor := w.computerOf(w.nodeName(p.ask.Node))
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

package simulate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
)

// A disk records what was done to its content.
type disk struct {
	generalized bool         // wholly
	partly      bool         // a pod worked on it and did not finish
	running     bool         // copied from a disk in use
	of          string       // node whose OS disk it is a copy of
	at          time.Time    // when that was copied
	user        string       // computer whose OS disk it is, by lower-case id
	version     azsim.Volume // image version that it was made from
}

// A computer is an instance as the substrate has it.
type computer struct {
	azsim.Computer
	running bool
	life    int // counts boots and ends
	made    int // counts OS disks
	ready   int // life in which its node became Ready
	copies  map[int32]azsim.Volume
	bad     string // what is wrong with its image
	twin    string // node whose machine id is on its image
}

func (c *computer) node() string { return strings.ToLower(c.HostName) }

// machines is the world as azsim.Substrate.
type machines world

func (m *machines) CreateVolume(_ context.Context, v azsim.Volume, from azsim.Source) error {
	defer (*world)(m).recovered("CreateVolume")
	w := (*world)(m)
	w.mu.Lock()
	d := &disk{generalized: true}
	if from.Volume != "" {
		source := w.disks[from.Volume]
		if source == nil {
			w.mu.Unlock()
			return fmt.Errorf("no volume %s", from.Volume)
		}
		*d = disk{generalized: source.generalized, partly: source.partly, running: source.running, of: source.of, at: source.at}
		if c := w.computers[source.user]; c != nil {
			flushed := time.Since(w.flushedAt) < 2*time.Minute // of a capture with --online
			d.running, d.of, d.at = c.running && !flushed, c.node(), time.Now()
			w.copies[d.of] = append(w.copies[d.of], d.at)
		}
		if strings.Contains(string(from.Volume), "/versions/") {
			d.version = from.Volume
		}
	}
	if _, there := w.disks[v]; !there {
		w.disks[v] = d
	}
	w.mu.Unlock()
	if strings.Contains(string(v), "/versions/") && (!d.generalized || d.partly || d.running) {
		w.broken(5, "version %s is made of a disk that is %+v", fleet.ResourceID(v).Name(), *d)
	}
	return nil
}

func (m *machines) DeleteVolume(_ context.Context, v azsim.Volume) error {
	defer (*world)(m).recovered("DeleteVolume")
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.disks, v)
	return nil
}

func (m *machines) Boot(ctx context.Context, c azsim.Computer) error {
	defer (*world)(m).recovered("Boot")
	w := (*world)(m)
	w.mu.Lock()
	d := w.disks[c.OSDisk]
	if d == nil {
		w.mu.Unlock()
		return fmt.Errorf("%s: no volume %s", c.Name, c.OSDisk)
	}
	there := w.computers[c.ID]
	if there == nil {
		there = &computer{copies: map[int32]azsim.Volume{}}
		w.computers[c.ID] = there
	}
	if there.running {
		w.mu.Unlock()
		return nil
	}
	d.user, d.generalized = c.ID, false
	there.Computer, there.running = c, true
	there.life++
	for lun, v := range c.DataDisks {
		if !ofOthers(v) {
			there.copies[lun] = v
		}
	}
	version := d.version
	if c.Provision {
		there.bad, there.twin = "", ""
		there.made++
	}
	if c.Provision && version != "" && d.of != "" && d.of != "others" { // a command built it
		there.bad, there.twin = w.story.Pool.Bad, map[string]string{"twin": d.of}[w.story.Pool.Bad]
		if w.badness != nil {
			there.bad = w.badness(d)
		}
	}
	bad := there.bad
	w.mu.Unlock()
	if bad == "no boot" {
		return cmp.Or(sleep(ctx, bootLimit), fmt.Errorf("%s: its OS does not start", c.Name))
	}
	if c.Provision && version != "" {
		w.checkClone(c, version)
	}
	w.booted(there)
	return nil
}

// checkClone compares a new instance's customData with its version's tag.
func (w *world) checkClone(c azsim.Computer, version azsim.Volume) {
	made := w.versions()[string(version)]
	if made == nil || made.Tags[fleet.TagCustomData] == nil || w.story.Pool.Forged || w.isTouched("model", string(version)) {
		return
	}
	if sum := sha256.Sum256(c.CustomData); hex.EncodeToString(sum[:]) != *made.Tags[fleet.TagCustomData] {
		w.broken(5, "%s is made of version %s with customData %q, which is not that of its tag", c.Name, fleet.ResourceID(version).Name(), c.CustomData)
	}
}

func (m *machines) Shutdown(_ context.Context, id string, _ bool) error {
	defer (*world)(m).recovered("Shutdown")
	w := (*world)(m)
	w.mu.Lock()
	c := w.computers[id]
	ran := c != nil && c.running
	if ran {
		c.running = false
		c.life++
	}
	w.mu.Unlock()
	if ran {
		w.halted(c)
	}
	return nil
}

func (m *machines) Remove(ctx context.Context, id string) error {
	defer (*world)(m).recovered("Remove")
	(*world)(m).checkRemove(id)
	m.mu.Lock()
	if c := m.computers[id]; c != nil {
		m.removed[c.node()] = c.running && c.ready == c.life && c.life > 1
	}
	m.mu.Unlock()
	if err := m.Shutdown(ctx, id, false); err != nil {
		return err
	}
	w := (*world)(m)
	w.mu.Lock()
	c := w.computers[id]
	delete(w.computers, id)
	w.mu.Unlock()
	if c != nil { // the cloud controller takes a while
		w.after(time.Minute, func() { w.removeNode(c) })
	}
	return nil
}

func (m *machines) Attach(_ context.Context, id string, lun int32, v azsim.Volume) error {
	defer (*world)(m).recovered("Attach")
	w := (*world)(m)
	user := ""
	w.mu.Lock()
	c, d := w.computers[id], w.disks[v]
	if c != nil && d != nil && !ofOthers(v) {
		c.copies[lun], user = v, d.user
	}
	w.mu.Unlock()
	switch {
	case c == nil || d == nil:
		return fmt.Errorf("attach %s to %s: not both exist", v, id)
	case ofOthers(v):
		return nil
	case user != "":
		w.broken(12, "the OS disk %s of %s is attached to %s", v, user, id)
	}
	w.checkAttached(c.node())
	return nil
}

func (m *machines) Detach(_ context.Context, id string, lun int32) error {
	defer (*world)(m).recovered("Detach")
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.computers[id]; c != nil {
		delete(c.copies, lun)
	}
	return nil
}

func (m *machines) Console(context.Context, string) ([]byte, error) { return m.console, nil }

// computerOf returns the computer of a node, nil without one.
func (w *world) computerOf(node string) *computer {
	return w.find(func(c *computer) bool { return c.node() == node })
}

// workbench returns the computer that a copy is attached to.
func (w *world) workbench() *computer {
	return w.find(func(c *computer) bool { return len(c.copies) > 0 })
}

func (w *world) find(is func(*computer) bool) *computer {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.computers {
		if is(c) {
			return c
		}
	}
	return nil
}

func (w *world) lifeOf(c *computer) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.life
}

// isReady reports whether a computer's node is Ready since its last boot.
func (w *world) isReady(c *computer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.running && c.ready == c.life
}

// isOn reports whether a computer runs since its boot of that life; 0 is any.
func (w *world) isOn(c *computer, life int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.running && (life == 0 || c.life == life)
}

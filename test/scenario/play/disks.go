package play

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/scenario"
)

// A disk knows what was done to what is on it.
type disk struct {
	host        string // computer whose identity is on it; "" for none
	generalized bool   // identity removed, all of it
	partly      bool   // removal begun, and not ended
	half        bool   // a pod was lost that worked on it, and another came after it
	running     bool   // copied from a disk that was in use
	empty       bool   // made without a source, as volume drivers do
	user        string // computer that has it as its OS disk, by lower-case id
	writes      int
	content     *content     // nil: a Marketplace image's, which nobody booted
	birth       *birth       // of a first boot that is not in content yet
	of          azsim.Volume // image version that it was made from, "" for none
}

// A computer is an instance as the substrate has it.
type computer struct {
	azsim.Computer
	running bool
	life    int // counts boots and ends
	ready   int // life in which its node was Ready last
	readied time.Time
	luns    map[int32]azsim.Volume // the copies that are attached
	theirs  map[int32]azsim.Volume // data disks of others
	booted  time.Time
}

// machines is the world as azsim.Substrate.
type machines world

func (m *machines) world() *world { return (*world)(m) }

func (m *machines) CreateVolume(_ context.Context, v azsim.Volume, from azsim.Source) error {
	w := m.world()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.disks[v]; there {
		return nil
	}
	d := &disk{generalized: from.Platform != "" || from.Volume == "", empty: from.Platform == "" && from.Volume == ""}
	if from.Volume != "" {
		source := w.disks[from.Volume]
		if source == nil {
			return fmt.Errorf("no volume %s", from.Volume)
		}
		*d = disk{host: source.host, generalized: source.generalized, partly: source.partly, half: source.half, running: source.running, content: w.contentOf(source)}
		if c := w.computers[source.user]; c != nil && c.running {
			d.running = true
		}
		if strings.Contains(string(from.Volume), "/versions/") {
			d.of = from.Volume
		}
	}
	w.disks[v] = d
	if strings.Contains(string(v), "/versions/") && (!d.generalized || d.partly || d.running || d.host != "") {
		w.mu.Unlock()
		w.broken("image %s was made from a disk that is not generalised: %+v", v[strings.LastIndex(string(v), "/")+1:], *d)
		w.mu.Lock()
	}
	return nil
}

func (m *machines) DeleteVolume(_ context.Context, v azsim.Volume) error {
	w := m.world()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.disks, v)
	return nil
}

func (m *machines) Boot(_ context.Context, c azsim.Computer) error {
	w := m.world()
	w.mu.Lock()
	d := w.disks[c.OSDisk]
	if d == nil {
		w.mu.Unlock()
		return fmt.Errorf("%s: no volume %s", c.Name, c.OSDisk)
	}
	if d.user == "" && w.hasFiles() {
		d.birth = &birth{host: c.HostName, customData: string(c.CustomData)}
	}
	d.user, d.host, d.generalized = c.ID, c.HostName, false
	there := w.computers[c.ID]
	if there == nil {
		there = &computer{luns: map[int32]azsim.Volume{}, theirs: map[int32]azsim.Volume{}}
		w.computers[c.ID] = there
	}
	if there.running {
		w.mu.Unlock()
		return nil
	}
	there.Computer, there.running, there.booted = c, true, time.Now()
	there.life++
	for lun, v := range c.DataDisks {
		there.hang(lun, v, w.disks[v])
	}
	of := d.of
	w.mu.Unlock()
	if c.Provision {
		w.judgeMadeOf(c, fleet.ResourceID(of))
	}
	w.booted(there)
	return nil
}

// judgeMadeOf: an instance that is made of a version gets the customData that its tags
// say it goes with, in the bytes that were saved.
func (w *world) judgeMadeOf(c azsim.Computer, version fleet.ResourceID) {
	if time.Since(w.begin) == 0 || version == "" {
		return
	}
	i, there := imageAt(w.images(), version)
	if !there || i.tags[fleet.TagCustomData] == "" || len(w.happenedTo(scenario.ChangeModel, scenario.DeleteVersion, scenario.DeleteGallery)) > 0 {
		return
	}
	if sum := sha256.Sum256(c.CustomData); hex.EncodeToString(sum[:]) != i.tags[fleet.TagCustomData] {
		w.broken("%s is made of version %s with the customData %q, which that does not go with", c.Name, version.Name(), c.CustomData)
	}
}

func (m *machines) Shutdown(_ context.Context, id string, _ bool) error {
	w := m.world()
	w.mu.Lock()
	c := w.computers[id]
	if c == nil || !c.running {
		w.mu.Unlock()
		return nil
	}
	c.running = false
	c.life++
	w.mu.Unlock()
	w.halted(c)
	return nil
}

func (m *machines) Remove(ctx context.Context, id string) error {
	if err := m.Shutdown(ctx, id, false); err != nil {
		return err
	}
	w := m.world()
	w.mu.Lock()
	c := w.computers[id]
	delete(w.computers, id)
	w.mu.Unlock()
	if c != nil {
		w.removed(c)
	}
	return nil
}

func (m *machines) Attach(_ context.Context, id string, lun int32, v azsim.Volume) error {
	w := m.world()
	w.mu.Lock()
	c, d := w.computers[id], w.disks[v]
	if c == nil || d == nil {
		w.mu.Unlock()
		return fmt.Errorf("attach %s to %s: not both are there", v, id)
	}
	c.hang(lun, v, d)
	used := d.user != ""
	w.mu.Unlock()
	if used {
		w.broken("the OS disk %s was attached to another computer", v)
	}
	return nil
}

// hang notes a disk that is attached, as a copy or as one of others.
func (c *computer) hang(lun int32, v azsim.Volume, d *disk) {
	if d != nil && d.empty {
		c.theirs[lun] = v
		return
	}
	c.luns[lun] = v
}

func (m *machines) Detach(_ context.Context, id string, lun int32) error {
	w := m.world()
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.computers[id]; c != nil {
		delete(c.luns, lun)
		delete(c.theirs, lun)
	}
	return nil
}

func (m *machines) Console(context.Context, string) ([]byte, error) { return nil, nil }

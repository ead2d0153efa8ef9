package controller

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/fleet"
)

// A Key names an instance: its ARM id in lower case.
type Key string

// KeyOf returns the key of an instance's id.
func KeyOf(id fleet.ResourceID) Key { return Key(strings.ToLower(string(id))) }

// A Fleet is what is known of the instances of all pools: what the cloud reported
// last, what was decided, and serial logs that are not judged yet. It may be
// used from many goroutines.
type Fleet struct {
	mu    sync.Mutex
	pools map[Key]*poolState
	all   map[Key]*instanceState
	gone  map[Key]*instanceState // are no more, and their boots are not published yet
	hosts map[string]Key         // by host name in lower case
}

type instanceState struct {
	boot       fleet.Boot
	assessment Assessment
	serial     []byte // read, and not judged yet
	last       []byte // the end of the log that was judged last, while it boots
	reads      serialReads
	counted    []State         // outcomes that are in the metrics
	relayed    *pendingVerdict // a verdict that the admission server keeps for the node
}

// NewFleet makes an empty one.
func NewFleet() *Fleet {
	return &Fleet{pools: map[Key]*poolState{}, all: map[Key]*instanceState{}, gone: map[Key]*instanceState{}, hosts: map[string]Key{}}
}

// Known is what is known of one instance. Of an instance that is being deleted Serial is what
// was read last.
type Known struct {
	Boot     fleet.Boot
	Previous Assessment
	Serial   []byte
	relayed  *pendingVerdict
	gone     bool
}

// Get returns what is known of an instance.
func (f *Fleet) Get(key Key) (Known, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, gone := f.all[key], false
	if s == nil {
		if s, gone = f.gone[key]; !gone {
			return Known{}, false
		}
	}
	k := Known{s.boot, s.assessment, s.serial, s.relayed, gone}
	if len(k.Serial) == 0 && strings.EqualFold(s.boot.ProvisioningState, string(Deleting)) {
		k.Serial = s.last
	}
	return k, true
}

// ByHost finds an instance by its host name, in upper or lower case.
func (f *Fleet) ByHost(name string) (Key, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k, ok := f.hosts[strings.ToLower(name)]
	return k, ok
}

// Decided records an assessment. It returns false where the instance is gone, or
// another is there under its name.
func (f *Fleet) Decided(key Key, a Assessment, judged []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.all[key]
	if s == nil || !strings.EqualFold(s.boot.VMID, a.VMID) {
		return false
	}
	s.assessment = a
	if len(judged) > 0 && len(s.serial) == len(judged) && &s.serial[0] == &judged[0] {
		s.serial = nil
		if a.State == Booting {
			s.last = lastLog(judged)
		}
	}
	if a.State != Booting && (a.Basis != basisDeleted || len(judged) > 0) {
		s.last = nil
	}
	return true
}

// count reports whether an instance's outcome is to be counted, once for each.
func (f *Fleet) count(key Key, a Assessment) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.all[key]
	if s == nil || !strings.EqualFold(s.boot.VMID, a.VMID) {
		return true // gone meanwhile, so that it is not asked again
	}
	if slices.Contains(s.counted, a.State) {
		return false
	}
	s.counted = append(s.counted, a.State)
	return true
}

// Assessments returns all that was decided, by pool and name.
func (f *Fleet) Assessments() []Assessment {
	f.mu.Lock()
	out := make([]Assessment, 0, len(f.all))
	for _, s := range f.all {
		if s.assessment.State != "" {
			out = append(out, s.assessment)
		}
	}
	f.mu.Unlock()
	Sort(out)
	return out
}

// Sort puts assessments in the order in which they are shown: by pool and name.
func Sort(list []Assessment) {
	slices.SortFunc(list, func(a, b Assessment) int {
		if c := strings.Compare(strings.ToLower(string(a.Pool)), strings.ToLower(string(b.Pool))); c != 0 {
			return c
		}
		return strings.Compare(a.HostName+" "+a.Name, b.HostName+" "+b.Name)
	})
}

// took puts in what a pool's list has, and returns the instances of which
// something changed, and those that are gone.
func (f *Fleet) took(pool Key, boots []fleet.Boot) (changed, gone []Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := make(map[Key]bool, len(boots))
	for i := range boots {
		b := compact(boots[i])
		k := KeyOf(b.Instance)
		seen[k] = true
		s := f.all[k]
		if s == nil || !strings.EqualFold(s.boot.VMID, b.VMID) {
			s = &instanceState{}
			f.all[k] = s
			delete(f.gone, k)
		} else if sameBoot(s.boot, b) {
			continue
		}
		s.boot = b
		if b.HostName != "" {
			f.hosts[strings.ToLower(b.HostName)] = k
		}
		changed = append(changed, k)
	}
	for k, s := range f.all {
		if KeyOf(s.boot.Pool) == pool && !seen[k] {
			f.drop(k, s)
			gone = append(gone, k)
		}
	}
	slices.Sort(changed)
	slices.Sort(gone)
	return changed, gone
}

func (f *Fleet) drop(k Key, s *instanceState) {
	delete(f.all, k)
	f.keepGone(k, s)
	if h := strings.ToLower(s.boot.HostName); f.hosts[h] == k {
		delete(f.hosts, h)
	}
}

// compact returns as much of a Boot as is used again: what extensions report is kept
// where they make the node or have a verdict, and bounded.
func compact(b fleet.Boot) fleet.Boot {
	var kept []fleet.ExtensionStatus
	for _, e := range b.Extensions {
		// Of what makes the node and failed, all that it reports is evidence.
		whole := makesNode(e) && slices.ContainsFunc(e.Statuses, fleet.BootStatus.Failed)
		e.Statuses, e.Substatuses = shorten(e.Statuses, makesNode(e), whole), shorten(e.Substatuses, makesNode(e), whole)
		kept = append(kept, e)
	}
	b.Extensions = kept
	b.Agent.Time = time.Time{} // it changes all the time, and decides nothing
	return b
}

func shorten(list []fleet.BootStatus, makes, whole bool) []fleet.BootStatus {
	var out []fleet.BootStatus
	for _, st := range list {
		hasVerdict := strings.Contains(st.Message, verdictMark)
		switch {
		case !hasVerdict && !whole && !st.Failed() && !makes:
			st.Message = ""
		case !hasVerdict && !whole && !st.Failed():
			st.Message = string(head([]byte(st.Message), 256))
		case len(st.Message) > maxQuoted: // the end has most of the evidence
			st.Message = strings.Clone(strings.ToValidUTF8(tail(st.Message, maxQuoted), ""))
		}
		out = append(out, st)
	}
	return out
}

// verdictMark begins a verdict in one line: see wire.Verdict.ConsoleLine.
const verdictMark = "ortet.io/verdict"

func sameBoot(a, b fleet.Boot) bool {
	a.Extensions, b.Extensions, a.Agent, b.Agent = extensionsOf(a), extensionsOf(b), fleet.Agent{}, fleet.Agent{}
	if !slices.EqualFunc(a.Extensions, b.Extensions, func(x, y fleet.ExtensionStatus) bool {
		return x.Name == y.Name && x.Type == y.Type && slices.Equal(x.Statuses, y.Statuses) && slices.Equal(x.Substatuses, y.Substatuses)
	}) {
		return false
	}
	return a.Instance == b.Instance && a.Pool == b.Pool && a.Name == b.Name && a.HostName == b.HostName && a.VMID == b.VMID &&
		a.Image == b.Image && a.Power == b.Power && a.Console == b.Console &&
		a.ProvisioningState == b.ProvisioningState && a.Provisioning == b.Provisioning
}

// extensionsOf leaves out the times, which change at each heartbeat.
func extensionsOf(b fleet.Boot) []fleet.ExtensionStatus {
	out := slices.Clone(b.Extensions)
	timeless := func(list []fleet.BootStatus) []fleet.BootStatus {
		list = slices.Clone(list)
		for i := range list {
			list[i].Time = time.Time{}
		}
		return list
	}
	for i := range out {
		out[i].Statuses, out[i].Substatuses = timeless(out[i].Statuses), timeless(out[i].Substatuses)
	}
	return out
}

// evidenceNames are the names that evidence has, or would have, of the instances
// whose pools were listed since then.
func (f *Fleet) evidenceNames(since time.Time) map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]bool, len(f.all))
	for _, s := range f.all {
		if p := f.pools[KeyOf(s.boot.Pool)]; p != nil && !p.last.Before(since) {
			out[evidenceNameOf(s.boot)] = true
		}
	}
	return out
}

// counts returns how many instances of each pool are in each state.
func (f *Fleet) counts() map[string]map[State]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]map[State]int{}
	for p := range maps.Values(f.pools) {
		out[p.pool.Name] = map[State]int{}
	}
	for _, s := range f.all {
		name := s.boot.Pool.Name()
		if out[name] == nil {
			out[name] = map[State]int{}
		}
		if s.assessment.State != "" {
			out[name][s.assessment.State]++
		}
	}
	return out
}

// listed returns when each pool was last listed, of those of one name the one that was
// not for longest.
func (f *Fleet) listed() map[string]time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]time.Time{}
	for _, s := range f.pools {
		if !s.last.IsZero() {
			out[s.pool.Name] = earliest(s.last, out[s.pool.Name])
		}
	}
	return out
}

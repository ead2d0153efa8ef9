package controller

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/fleet"
)

// A Fleet is what is known of the instances of all pools: what the cloud reported
// last, what was decided, and serial logs that are not judged yet. It may be
// used from many goroutines.
type Fleet struct {
	mu    sync.Mutex
	pools map[fleet.Key]*poolState
	all   map[fleet.Key]*instanceState
	gone  map[fleet.Key]*instanceState // are no more, and their boots are not published yet
	hosts map[string]fleet.Key         // by host name in lower case
}

type instanceState struct {
	boot       fleet.Boot
	assessment assess.Assessment
	serial     []byte // read, and not judged yet
	last       []byte // the end of the log that was judged last, while it boots
	reads      serialReads
	counted    []assess.State  // outcomes that are in the metrics
	relayed    *pendingVerdict // a verdict that the admission server keeps for the node
}

// NewFleet makes an empty one.
func NewFleet() *Fleet {
	return &Fleet{pools: map[fleet.Key]*poolState{}, all: map[fleet.Key]*instanceState{}, gone: map[fleet.Key]*instanceState{}, hosts: map[string]fleet.Key{}}
}

// Known is what is known of one instance. Of an instance that is being deleted Serial is what
// was read last.
type Known struct {
	Boot     fleet.Boot
	Previous assess.Assessment
	Serial   []byte
	relayed  *pendingVerdict
	gone     bool
}

// Get returns what is known of an instance.
func (f *Fleet) Get(key fleet.Key) (Known, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, gone := f.all[key], false
	if s == nil {
		if s, gone = f.gone[key]; !gone {
			return Known{}, false
		}
	}
	k := Known{s.boot, s.assessment, s.serial, s.relayed, gone}
	if len(k.Serial) == 0 && strings.EqualFold(s.boot.ProvisioningState, string(assess.Deleting)) {
		k.Serial = s.last
	}
	return k, true
}

// ByHost finds an instance by its host name, in upper or lower case.
func (f *Fleet) ByHost(name string) (fleet.Key, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k, ok := f.hosts[strings.ToLower(name)]
	return k, ok
}

// Decided records an assessment. It returns false where the instance is gone, or
// another is there under its name.
func (f *Fleet) Decided(key fleet.Key, a assess.Assessment, judged []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.all[key]
	if s == nil || !strings.EqualFold(s.boot.VMID, a.VMID) {
		return false
	}
	s.assessment = a
	if len(judged) > 0 && len(s.serial) == len(judged) && &s.serial[0] == &judged[0] {
		s.serial = nil
		if a.State == assess.Booting {
			s.last = lastLog(judged)
		}
	}
	if a.State != assess.Booting && (a.Basis != assess.BasisDeleted || len(judged) > 0) {
		s.last = nil
	}
	return true
}

// count reports whether an instance's outcome is to be counted, once for each.
func (f *Fleet) count(key fleet.Key, a assess.Assessment) bool {
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
func (f *Fleet) Assessments() []assess.Assessment {
	f.mu.Lock()
	out := make([]assess.Assessment, 0, len(f.all))
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
func Sort(list []assess.Assessment) {
	slices.SortFunc(list, func(a, b assess.Assessment) int {
		if c := strings.Compare(strings.ToLower(string(a.Pool)), strings.ToLower(string(b.Pool))); c != 0 {
			return c
		}
		return strings.Compare(a.HostName+" "+a.Name, b.HostName+" "+b.Name)
	})
}

// took puts in what a pool's list has, and returns the instances of which
// something changed, and those that are gone.
func (f *Fleet) took(pool fleet.Key, boots []fleet.Boot) (changed, gone []fleet.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := make(map[fleet.Key]bool, len(boots))
	for i := range boots {
		b := assess.Compact(boots[i])
		k := fleet.KeyOf(b.Instance)
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
		if fleet.KeyOf(s.boot.Pool) == pool && !seen[k] {
			f.drop(k, s)
			gone = append(gone, k)
		}
	}
	slices.Sort(changed)
	slices.Sort(gone)
	return changed, gone
}

func (f *Fleet) drop(k fleet.Key, s *instanceState) {
	delete(f.all, k)
	f.keepGone(k, s)
	if h := strings.ToLower(s.boot.HostName); f.hosts[h] == k {
		delete(f.hosts, h)
	}
}

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
		if p := f.pools[fleet.KeyOf(s.boot.Pool)]; p != nil && !p.last.Before(since) {
			out[assess.EvidenceName(s.boot)] = true
		}
	}
	return out
}

// counts returns how many instances of each pool are in each state.
func (f *Fleet) counts() map[string]map[assess.State]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]map[assess.State]int{}
	for p := range maps.Values(f.pools) {
		out[p.pool.Name] = map[assess.State]int{}
	}
	for _, s := range f.all {
		name := s.boot.Pool.Name()
		if out[name] == nil {
			out[name] = map[assess.State]int{}
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
		if was, has := out[s.pool.Name]; !s.last.IsZero() && (!has || s.last.Before(was)) {
			out[s.pool.Name] = s.last
		}
	}
	return out
}

// Package kured reads and writes the lock of kured, the reboot daemon: an
// annotation on its DaemonSet that says which nodes may reboot now. The forms
// are those of kured 1.23 (pkg/daemonsetlock), which older ones share. It
// decides, and does no I/O.
package kured

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// defaultAnnotation is where kured has its lock if no flag says otherwise.
const defaultAnnotation = "weave.works/kured-node-lock"

// maxConcurrency bounds what is believed of kured's flag.
const maxConcurrency = 1000

// Settings are those flags of kured that say how its lock is written.
type Settings struct {
	Annotation  string
	Concurrency int // nodes that may reboot at once
}

// ReadSettings reads kured's flags off its container: words are command and
// arguments, "--flag value" or "--flag=value", which override the environment's
// KURED_FLAG. What kured would refuse is left at its default.
func ReadSettings(words []string, environment map[string]string) Settings {
	settings := Settings{Annotation: defaultAnnotation, Concurrency: 1}
	set := func(flag, value string) {
		switch flag {
		case "lock-annotation":
			if value != "" {
				settings.Annotation = value
			}
		case "concurrency":
			if n, err := strconv.Atoi(value); err == nil && n > 0 && n <= maxConcurrency {
				settings.Concurrency = n
			}
		}
	}
	set("lock-annotation", environment["KURED_LOCK_ANNOTATION"])
	set("concurrency", environment["KURED_CONCURRENCY"])
	for i, word := range words {
		flag, ok := strings.CutPrefix(word, "--")
		if !ok {
			continue
		}
		if name, value, ok := strings.Cut(flag, "="); ok {
			set(name, value)
		} else if i+1 < len(words) {
			set(flag, words[i+1])
		}
	}
	return settings
}

// lock is one holder's, as kured writes it; its TTL is in nanoseconds, and
// 0 means that it does not expire.
type lock struct {
	NodeID   string `json:"nodeID"`
	Metadata struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"metadata"`
	Created time.Time     `json:"created"`
	TTL     time.Duration `json:"TTL"`
}

func (l lock) expired(now time.Time) bool {
	return l.TTL > 0 && now.Sub(l.Created) >= l.TTL
}

// locksOfSeveral is how kured writes its lock where it reboots several nodes at once.
type locksOfSeveral struct {
	MaxOwners int    `json:"maxOwners"`
	Locks     []lock `json:"locks"`
}

// A HeldError says who has kured's lock.
type HeldError struct {
	By   string        // node, or holder as given to Take
	Left time.Duration // until its time to live passes; 0 where it has none
}

func (e *HeldError) Error() string {
	if e.Left > 0 {
		return fmt.Sprintf("%s has it, for at most another %s", e.By, e.Left.Round(time.Second))
	}
	return e.By + " has it"
}

// readLocks reads either form.
func readLocks(value string) ([]lock, error) {
	if value == "" {
		return nil, nil
	}
	var both struct {
		lock
		MaxOwners int     `json:"maxOwners"`
		Locks     *[]lock `json:"locks"`
	}
	if err := json.Unmarshal([]byte(value), &both); err != nil {
		return nil, fmt.Errorf("kured's lock is not what kured writes: %w", err)
	}
	if both.Locks != nil {
		return *both.Locks, nil
	}
	if both.NodeID == "" && both.MaxOwners > 0 {
		// An emptied lock for several holders has "locks": null.
		return nil, nil
	}
	if both.NodeID == "" {
		return nil, errors.New("kured's lock names no node")
	}
	return []lock{both.lock}, nil
}

// write returns the annotation's value for the locks, in the form that this kured
// reads; "" where none is left.
func (s Settings) write(locks []lock) (string, error) {
	var value any
	switch {
	case len(locks) == 0:
		return "", nil
	case s.Concurrency > 1:
		value = locksOfSeveral{MaxOwners: s.Concurrency, Locks: locks}
	default:
		value = locks[0]
	}
	data, err := json.Marshal(value)
	return string(data), err
}

// Take returns the lock's new value, with every place taken by holder until ttl
// has passed, also where holder has it already. It is a *HeldError where
// somebody else has it, and another error where the value is not kured's.
func (s Settings) Take(value, holder string, now time.Time, ttl time.Duration) (string, error) {
	locks, err := readLocks(value)
	if err != nil {
		return "", err
	}
	for _, lock := range locks {
		if lock.NodeID == holder || lock.expired(now) {
			continue
		}
		held := &HeldError{By: lock.NodeID}
		if lock.TTL > 0 {
			held.Left = lock.TTL - now.Sub(lock.Created)
		}
		return "", held
	}
	taken := make([]lock, s.Concurrency)
	for i := range taken {
		taken[i] = lock{NodeID: holder, Created: now.UTC(), TTL: ttl}
	}
	return s.write(taken)
}

// Release returns the lock's new value without the holder's places, "" where none
// is left, and whether that is a change. A value that is not kured's stays.
func (s Settings) Release(value, holder string) (changed string, change bool, err error) {
	locks, err := readLocks(value)
	if err != nil {
		return "", false, nil //nolint:nilerr // what cannot be read is not the holder's
	}
	var others []lock
	for _, lock := range locks {
		if lock.NodeID != holder {
			others = append(others, lock)
		}
	}
	if len(others) == len(locks) {
		return "", false, nil
	}
	changed, err = s.write(others)
	return changed, err == nil, err
}

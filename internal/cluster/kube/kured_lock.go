package kube

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// kuredLockAnnotation is kured's default, on its own DaemonSet.
const kuredLockAnnotation = "weave.works/kured-node-lock"

// maxConcurrency bounds what is believed of kured's flag.
const maxConcurrency = 1000

// kuredSettings are those flags of kured that say how its lock is written.
type kuredSettings struct {
	annotation  string
	concurrency int
}

// settingsOf reads kured's flags off its DaemonSet: "--flag value" and
// "--flag=value", or the environment's KURED_FLAG, which a flag overrides.
func settingsOf(daemonSet *appsv1.DaemonSet) kuredSettings {
	settings := kuredSettings{annotation: kuredLockAnnotation, concurrency: 1}
	set := func(flag, value string) {
		switch flag {
		case "lock-annotation":
			if value != "" {
				settings.annotation = value
			}
		case "concurrency":
			if n, err := strconv.Atoi(value); err == nil && n > 0 && n <= maxConcurrency {
				settings.concurrency = n
			}
		}
	}
	for _, container := range daemonSet.Spec.Template.Spec.Containers {
		for _, variable := range container.Env {
			if name, ok := strings.CutPrefix(variable.Name, "KURED_"); ok {
				set(strings.ToLower(strings.ReplaceAll(name, "_", "-")), variable.Value)
			}
		}
		words := append(append([]string(nil), container.Command...), container.Args...)
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
	}
	return settings
}

// kuredLock is one holder's, as kured writes it; its TTL is in nanoseconds, and
// 0 means that it does not expire.
type kuredLock struct {
	NodeID   string `json:"nodeID"`
	Metadata struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"metadata"`
	Created time.Time     `json:"created"`
	TTL     time.Duration `json:"TTL"`
}

func (l kuredLock) expired(now time.Time) bool {
	return l.TTL > 0 && now.Sub(l.Created) >= l.TTL
}

// kuredLocks is how kured writes its lock where it reboots several nodes at once.
type kuredLocks struct {
	MaxOwners int         `json:"maxOwners"`
	Locks     []kuredLock `json:"locks"`
}

// A lockHeldError says who has kured's lock.
type lockHeldError struct {
	by   string
	left time.Duration // 0 where it does not expire
}

func (e *lockHeldError) Error() string {
	if e.left > 0 {
		return fmt.Sprintf("%s has it, for at most another %s", e.by, e.left.Round(time.Second))
	}
	return e.by + " has it"
}

// readLocks reads either form.
func readLocks(value string) ([]kuredLock, error) {
	if value == "" {
		return nil, nil
	}
	var both struct {
		kuredLock
		Locks *[]kuredLock `json:"locks"`
	}
	if err := json.Unmarshal([]byte(value), &both); err != nil {
		return nil, fmt.Errorf("kured's lock is not what kured writes: %w", err)
	}
	if both.Locks != nil {
		return *both.Locks, nil
	}
	if both.NodeID == "" {
		// An emptied lock for several holders has "locks": null.
		return nil, nil
	}
	return []kuredLock{both.kuredLock}, nil
}

// write gives the annotation's value for the locks, in the form that this kured
// reads; "" where none is left.
func (s kuredSettings) write(locks []kuredLock) (string, error) {
	var value any
	switch {
	case len(locks) == 0:
		return "", nil
	case s.concurrency > 1:
		value = kuredLocks{MaxOwners: s.concurrency, Locks: locks}
	default:
		value = locks[0]
	}
	data, err := json.Marshal(value)
	return string(data), err
}

// take gives the lock's value with every place taken by holder.
func (s kuredSettings) take(value, holder string, now time.Time, ttl time.Duration) (string, bool, error) {
	locks, err := readLocks(value)
	if err != nil {
		return "", false, err
	}
	for _, lock := range locks {
		if lock.NodeID == holder || lock.expired(now) {
			continue
		}
		held := &lockHeldError{by: lock.NodeID}
		if lock.TTL > 0 {
			held.left = lock.TTL - now.Sub(lock.Created)
		}
		return "", false, held
	}
	taken := make([]kuredLock, s.concurrency)
	for i := range taken {
		taken[i] = kuredLock{NodeID: holder, Created: now.UTC(), TTL: ttl}
	}
	value, err = s.write(taken)
	return value, err == nil, err
}

// release gives the lock's value without the holder's.
func (s kuredSettings) release(value, holder string) (string, bool, error) {
	locks, err := readLocks(value)
	if err != nil {
		return "", false, err
	}
	var others []kuredLock
	for _, lock := range locks {
		if lock.NodeID != holder {
			others = append(others, lock)
		}
	}
	if len(others) == len(locks) {
		return "", false, nil
	}
	value, err = s.write(others)
	return value, err == nil, err
}

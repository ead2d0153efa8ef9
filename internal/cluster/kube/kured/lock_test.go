package kured

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
)

func TestSettings(t *testing.T) {
	for name, c := range map[string]struct {
		words       []string
		environment map[string]string
		want        Settings
	}{
		"defaults":     {[]string{"/usr/bin/kured"}, nil, Settings{defaultAnnotation, 1}},
		"equals":       {[]string{"kured", "--concurrency=3", "--lock-annotation=x/y"}, nil, Settings{"x/y", 3}},
		"words":        {[]string{"--concurrency", "3", "--lock-annotation", "x/y"}, nil, Settings{"x/y", 3}},
		"environment":  {nil, map[string]string{"KURED_CONCURRENCY": "4", "KURED_LOCK_ANNOTATION": "e/f"}, Settings{"e/f", 4}},
		"flag wins":    {[]string{"--concurrency=3"}, map[string]string{"KURED_CONCURRENCY": "4"}, Settings{defaultAnnotation, 3}},
		"nonsense":     {[]string{"--concurrency=-1", "--lock-annotation=", "--concurrency"}, nil, Settings{defaultAnnotation, 1}},
		"too many":     {[]string{"--concurrency=1000000000"}, nil, Settings{defaultAnnotation, 1}},
		"another flag": {[]string{"--concurrency-limit=5"}, nil, Settings{defaultAnnotation, 1}},
	} {
		if got := ReadSettings(c.words, c.environment); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// FuzzLock asserts that whatever stands in the annotation, a live lock of a
// node is never taken, and what is taken is ours, whole, until released.
func FuzzLock(f *testing.F) {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	f.Add("", 1)
	f.Add(`{"nodeID":"n","metadata":{"unschedulable":true},"created":"2026-11-21T09:00:00Z","TTL":0}`, 1)
	f.Add(`{"nodeID":"n","created":"2026-11-21T09:00:00Z","TTL":60000000000}`, 2)
	f.Add(`{"maxOwners":2,"locks":[{"nodeID":"n","created":"2026-11-21T09:59:30Z","TTL":60000000000}]}`, 2)
	f.Add(`{"maxOwners":2,"locks":null}`, 2)
	f.Add(`{"nodeID":"ortet/me","created":"2026-11-21T09:59:30Z","TTL":60000000000}`, 1)
	f.Fuzz(func(t *testing.T, value string, concurrency int) {
		if concurrency < 1 || concurrency > 10 {
			return
		}
		settings := Settings{defaultAnnotation, concurrency}
		const me = "ortet/me"
		before, readable := readLocks(value)
		taken, err := settings.Take(value, me, now, time.Minute)
		if err != nil {
			var held *HeldError
			if readable == nil && !errors.As(err, &held) {
				t.Fatalf("neither held nor unreadable: %v", err)
			}
			return
		}
		for _, l := range before {
			if l.NodeID != me && !l.expired(now) {
				t.Fatalf("the lock of %q was taken", l.NodeID)
			}
		}
		after, err := readLocks(taken)
		if err != nil || len(after) != concurrency {
			t.Fatalf("took %q: %d locks, %v", taken, len(after), err)
		}
		if _, err := settings.Take(taken, "ortet/you", now, time.Minute); err == nil {
			t.Fatal("a second holder took it")
		}
		var asOne lock
		if concurrency == 1 && (json.Unmarshal([]byte(taken), &asOne) != nil || asOne.NodeID != me) {
			t.Fatalf("kured for one node does not understand %q", taken)
		}
		left, change, err := settings.Release(taken, me)
		if err != nil || !change || left != "" {
			t.Fatalf("released: %q, change %t, %v", left, change, err)
		}
	})
}

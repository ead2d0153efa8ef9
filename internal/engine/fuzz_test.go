package engine

import (
	"bytes"
	"context"
	"crypto/hpke"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/journal"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/internal/wire"
)

// fenced is a cloud that no change outside the pool's resource group gets to.
type fenced struct {
	cloudProc
	t     *testing.T
	begun int
}

func (c *fenced) Begin(ctx context.Context, change fleet.Change) (fleet.Token, error) {
	c.begun++
	if group := string(poolID.Group()) + "/"; !strings.HasPrefix(low(change.Target()), strings.ToLower(group)) || strings.Contains(string(change.Target()), "..") {
		c.t.Errorf("%s of %s, outside of the pool's group", change.Verb(), change.Target())
	}
	return c.cloudProc.Begin(ctx, change)
}

// FuzzResume kills a capture at any place, writes anything into its journal, and
// has the same command go on. It ends, in one of the documented ways, and
// changes nothing outside of the pool's resource group; what it cannot read, it
// does not act upon.
func FuzzResume(f *testing.F) {
	const other = "/subscriptions/s/resourceGroups/other/providers/Microsoft.Compute/"
	for at := uint8(10); at < 150; at += 20 {
		f.Add(at, "facts", `{}`)
		f.Add(at, "facts", `{"names":{"workDisk":"`+other+`disks/theirs"}}`)
		f.Add(at, "undo", `[{"name":"cordon","what":1},{"name":"protection","what":"x"},{"name":"annotation/`+fleet.AnnotationScaleDownDisabled+`","what":[]},{"name":"machine/x"},{"name":"other"}]`)
		f.Add(at, "undo", `null`)
		f.Add(at, "request", `{"node":"other","history":-1,"newNodes":-5,"gracePeriod":-1,"extensions":{"mode":"x"}}`)
		f.Add(at, "request", `"x"`)
		f.Add(at, "intents", `{"stop":{"verb":"stop instance","target":"x","tries":-1,"token":"op-1","note":7}}`)
		f.Add(at, "record", `{"schema":2}`)
		f.Add(at, "record", `{"kind":"rollback"}`)
		f.Add(at, "record", `{"ended":{"exit":-1}}`)
	}
	for _, names := range []string{
		`"snapshot":"` + other + `snapshots/theirs"`, `"version":"` + other + `galleries/g/images/i/versions/1.0.0"`,
		`"workDisk":"/subscriptions/s/resourceGroups/my-group/providers/Microsoft.Compute/disks/.."`, `"definition":"x"`, `"job":"../x"`,
	} {
		f.Add(uint8(90), "facts", `{"names":{`+names+`}}`)
	}
	f.Add(uint8(60), "facts", `{"instance":"`+other+`virtualMachineScaleSets/p/virtualMachines/0"}`)
	f.Add(uint8(60), "facts", `{"bench":{"instance":"x","lun":-1},"privateKey":"AAAA","addresses":["","--help"]}`)
	f.Add(uint8(60), "facts", `{"return":{"to":"`+other+`galleries/g/images/i/versions/1.0.0"},"growTo":99999,"undoing":"y"}`)

	f.Fuzz(func(t *testing.T, at uint8, part, text string) {
		var change any
		if json.Unmarshal([]byte(text), &change) != nil {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.machine = map[string]string{}
			e, p, ctx, _ := w.process(t, "killed", int(at))
			_, _ = e.Capture(ctx, request())
			key := journalKey(poolID)
			rec, err := w.journals.Load(t.Context(), key)
			if !p.dead || err != nil {
				return // there is no journal yet, or no longer
			}
			revision := rec.Revision
			if rec, err = rewritten(rec, part, change); err != nil {
				return
			}
			rec.Revision = revision
			if _, err := w.journals.Save(t.Context(), rec); err != nil {
				return // no store would keep it
			}

			cloud := &fenced{cloudProc: cloudProc{&proc{w: w, holder: "next", kill: func() {}}}, t: t}
			e, err = New(Config{
				Cloud: cloud, Cluster: clusterProc{cloud.proc}, Logger: slog.New(slog.DiscardHandler), Reporter: &events{}, Version: "test",
				Image: "ortet:test", Namespace: "ortet", Holder: "next", Liveness: func(string) Liveness { return Unknown },
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 7*24*time.Hour)
			defer cancel()
			if pools, err := e.Status(ctx, nil); err != nil || len(pools) != 1 {
				t.Errorf("status: %v, %v", pools, err)
			}
			if _, err := e.Plan(ctx, request()); err != nil && ctx.Err() != nil {
				t.Errorf("planning does not end: %v", err)
			}
			if cloud.begun > 0 {
				t.Error("looking changes something")
			}
			_, err = e.Capture(ctx, request())
			if ctx.Err() != nil {
				t.Fatalf("it does not end: %v", err)
			}
			if code := ExitCode(err); code == ExitFailed && err != nil && !strings.Contains(err.Error(), "step ") {
				t.Errorf("ends undocumented: %v", err)
			}
			if _, readErr := factsOf(rec); readErr != nil && rec.Ended == nil && cloud.begun > 0 {
				t.Errorf("%d changes by a journal that cannot be read (%v): %v", cloud.begun, readErr, err)
			}
		})
	})
}

// rewritten merges a value into a part of a record.
func rewritten(rec journal.Record, part string, change any) (journal.Record, error) {
	data, err := json.Marshal(rec)
	if err != nil {
		return rec, err
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return rec, err
	}
	if part == "record" {
		merge(tree, change)
	} else if old, ok := tree[part].(map[string]any); ok && merge(old, change) {
		tree[part] = old
	} else {
		tree[part] = change
	}
	if data, err = json.Marshal(tree); err != nil {
		return rec, err
	}
	rec = journal.Record{}
	return rec, json.Unmarshal(data, &rec)
}

// merge puts one object's members into another's; false where it is none.
func merge(into map[string]any, change any) bool {
	object, ok := change.(map[string]any)
	for k, v := range object {
		if old, both := into[k].(map[string]any); !both || !merge(old, v) {
			into[k] = v
		}
	}
	return ok
}

// FuzzFacts asserts that facts which are taken name the pool's own resources
// alone, and come back as they were written.
func FuzzFacts(f *testing.F) {
	good := facts{Pool: poolID, Instance: instanceID(0), Names: prototype.NamesOf(poolID, "c", "2026.11.21"), PrivateKey: []byte("k"), Start: prototype.AtSnapshot}
	raw, err := json.Marshal(good)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(bytes.ReplaceAll(raw, []byte("my-group"), []byte("MY-GROUP")))
	f.Add(bytes.Replace(raw, []byte("_work"), []byte("_work/.."), 1))
	f.Add([]byte(`{"pool":"` + string(poolID) + `","return":{"to":"x"}}`))
	f.Add([]byte(`{"pool":"` + string(poolID) + `","names":null,"bench":{"lun":4294967296}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		rec := journal.Record{Schema: schema, Pool: string(poolID), Capture: "c", Facts: raw, Request: raw}
		// What only tells must take anything.
		_, _, _ = captureStatus(rec), resumption(rec, donorName), optionsOf(rec)
		if _, same := compareSaves(raw, raw); same && !json.Valid(raw) {
			t.Error("two that cannot be read are the same")
		}
		got, err := factsOf(rec)
		if err != nil {
			return
		}
		group := strings.ToLower(string(poolID.Group())) + "/"
		for _, id := range []fleet.ResourceID{got.Pool, got.Instance, got.Names.Gallery, got.Names.Definition, got.Names.Version,
			got.Names.Snapshot, got.Names.WorkDisk, got.Names.Generalized, got.Definition.ID} {
			if id != "" && (!strings.HasPrefix(low(id), group) || strings.Contains(string(id), "..") || strings.ContainsAny(string(id), "?#%")) {
				t.Errorf("%s is taken for the pool's", id)
			}
		}
		for _, p := range putters() {
			if p.byHand(got, "ortet") == "" {
				t.Errorf("%s says nothing of what to do by hand", p.undo)
			}
		}
		once, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		rec.Facts = once
		again, err := factsOf(rec)
		if err != nil {
			t.Fatalf("%s does not come back: %v", once, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s\nbecame\n%s (%v)", once, twice, err)
		}
	})
}

// FuzzReadOutput asserts that what a pod prints can be shown, and that nothing
// before its report hides the report.
func FuzzReadOutput(f *testing.F) {
	f.Add([]byte(`{"progress":"looking"}` + "\n" + `{"report":{"outcome":"Failed","message":"no"}}`))
	f.Add([]byte("E1121 panic\n\x1b[2J{}\r\n {\"progress\":\"\\u001b\"}"))
	f.Add([]byte(`{"report":{"outcome":"Generalized","findings":[{"path":"/x","class":"NodeIdentity","rule":"r"}]}}`))
	f.Add(bytes.Repeat([]byte("x"), 100_000))
	f.Fuzz(func(t *testing.T, output []byte) {
		progress, report := readOutput(output)
		if progress != "" {
			if err := (wire.GeneralizeLine{Progress: progress}).Validate(); err != nil {
				t.Errorf("progress %q: %v", progress, err)
			}
		}
		if report != nil {
			if err := report.Validate(); err != nil {
				t.Errorf("report %+v: %v", report, err)
			}
		}
		if text := tail(output); len(text) > 4*500 || strings.ContainsAny(text, "\x1b\n\r") {
			t.Errorf("shows %q", text)
		}
		_, last := readOutput(append(bytes.Clone(output), "\n{\"report\":{\"capture\":\"mine\",\"outcome\":\"DiskRefused\"}}\n"...))
		if last == nil || last.Capture != "mine" {
			t.Errorf("the report is not found behind %q", output)
		}
	})
}

// FuzzOpen asserts that only what was sealed to the key, for that kind and name
// and with that hash, is opened.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("#cloud-config\n"), "name", uint16(0), byte(0))
	f.Add([]byte(""), "", uint16(31), byte(1))
	f.Add([]byte("{}"), "x", uint16(40), byte(128))
	f.Fuzz(func(t *testing.T, data []byte, name string, at uint16, flip byte) {
		private, err := newKey()
		if err != nil {
			t.Fatal(err)
		}
		public, err := publicKey(private)
		if err != nil {
			t.Fatal(err)
		}
		key, err := kem().NewPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		item := wire.SealedItem{Kind: wire.ProtectedSettings, Name: name, SHA256: sha(string(data))}
		if item.Sealed, err = hpke.Seal(key, hpke.HKDFSHA256(), hpke.AES256GCM(), fmt.Appendf(nil, "ortet.io/saved/%s/%s", item.Kind, item.Name), data); err != nil {
			t.Fatal(err)
		}
		if got, err := open(private, item); err != nil || got != string(data) {
			t.Fatalf("sealed %q, opened %q, %v", data, got, err)
		}
		for what, other := range map[string]wire.SealedItem{
			"another kind": {Kind: wire.CustomData, Name: item.Name, SHA256: item.SHA256, Sealed: item.Sealed},
			"another name": {Kind: item.Kind, Name: item.Name + "x", SHA256: item.SHA256, Sealed: item.Sealed},
			"another hash": {Kind: item.Kind, Name: item.Name, SHA256: sha("other" + string(data)), Sealed: item.Sealed},
			"no seal":      {Kind: item.Kind, Name: item.Name, SHA256: item.SHA256, Sealed: data},
		} {
			if _, err := open(private, other); err == nil {
				t.Errorf("opened with %s", what)
			}
		}
		if flip != 0 {
			changed := bytes.Clone(item.Sealed)
			changed[int(at)%len(changed)] ^= flip
			item.Sealed = changed
			// The top bit of an X25519 key counts for nothing (RFC 7748, 5).
			if _, err := open(private, item); err == nil && (int(at)%len(changed) != 31 || flip != 128) {
				t.Errorf("opened with byte %d changed by %#x", int(at)%len(changed), flip)
			}
		}
		if _, err := open(data, item); err == nil {
			t.Error("opened with another key")
		}
	})
}

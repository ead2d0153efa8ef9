package push_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/internal/fleet"
	agent "github.com/ortet/ortet/internal/node/config"
	"github.com/ortet/ortet/internal/node/config/files"
	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/internal/workflow"
)

func public(key ed25519.PrivateKey) nodeconfig.PublicKey {
	return nodeconfig.PublicKeyOf(key.Public().(ed25519.PublicKey))
}

func (w *world) sign(generation int64, key ed25519.PrivateKey, keys ...nodeconfig.PublicKey) string {
	w.Helper()
	userData, err := nodeconfig.Document{Pool: strings.ToLower(string(pool)), Generation: generation, Keys: keys, Config: config("poison")}.Sign(key)
	if err != nil {
		w.Fatal(err)
	}
	return userData
}

func thief() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) }

func skip(names ...string) func(o *push.Request) {
	return func(o *push.Request) { o.SkipNodes = names }
}

// problems are those of a refusal.
func problems(err error) []fleet.Problem {
	var refused *workflow.Refused
	errors.As(err, &refused)
	if refused == nil {
		return nil
	}
	return refused.Problems
}

// A node that reports an unsigned generation is named before anything changes,
// and the push goes on without it. Its number reaches no other node.
func TestHole01NodeReportsWhatNobodySigned(t *testing.T) {
	for _, generation := range []int64{7, math.MaxInt64 - 1, math.MaxInt64} {
		play(t, 3, func(w *world) {
			w.must("one")
			w.write(name(1), wire.ConfigurationAnswer{Generation: generation, Wanted: generation, State: wire.ConfigurationApplied})
			puts := w.arm.puts
			_, err := w.push("two")
			w.refused(err, "GenerationNotSigned")
			if all := problems(err); len(all) != 1 || !strings.Contains(all[0].On, name(1)) || !strings.Contains(all[0].WayOut, "--skip-node") || w.arm.puts != puts {
				t.Errorf("got %+v and %d PUTs", all, w.arm.puts-puts)
			}
			result := w.must("two", skip(name(1)))
			if result.Generation != 2 || w.model() != 2 || len(result.Left) != 1 || result.Left[0].Name != name(1) || !strings.Contains(result.Left[0].Message, "--skip-node") {
				t.Errorf("got %+v, model %d", result, w.model())
			}
			if d := w.document(w.userData("1")); d == nil || d.Generation != 1 {
				t.Errorf("the node that was left out has %+v", d)
			}
			w.has(2, name(0), name(2))
			_, err = w.push("three", skip(name(1), "other"))
			w.refused(err, "BadSkip")
			plan, err := w.rollout().Plan(w.ctx, pool, config("three"))
			if err != nil || plan.Generation != 3 || !strings.Contains(strings.Join(plan.Notes, "\n"), name(1)) {
				t.Errorf("the plan is %+v, %v", plan, err)
			}
		})
	}
}

// A node that lies only while it is awaited ends the push as one that failed, and takes
// over for no other push.
func TestHole01NodeLiesWhileItIsAwaited(t *testing.T) {
	play(t, 3, func(w *world) {
		w.behave(name(1), "silent")
		w.arm.hook = func(id fleet.ResourceID, _ int) {
			if id.Name() == "1" {
				w.write(name(1), wire.ConfigurationAnswer{Generation: math.MaxInt64, Wanted: math.MaxInt64, State: wire.ConfigurationApplied})
			}
		}
		_, err := w.push("one")
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), "--skip-node "+name(1)) || strings.Contains(err.Error(), "another push") {
			t.Errorf("got %v", err)
		}
		if result := w.must("one", skip(name(1))); result.Generation != 1 {
			t.Errorf("went on with generation %d", result.Generation)
		}
		w.has(1, name(0), name(2))
	})
	// The annotation that asks for a generation is believed as little.
	play(t, 2, func(w *world) {
		w.arm.hook = func(fleet.ResourceID, int) {
			w.change(name(1), func(n *corev1.Node) {
				metav1.SetMetaDataAnnotation(&n.ObjectMeta, wire.ConfigurationWanted, fmt.Sprint(int64(math.MaxInt64)))
			})
			w.arm.hook = nil
		}
		if result := w.must("one"); result.Generation != 1 || w.model() != 1 {
			t.Errorf("got %+v", result)
		}
	})
}

// The history was deleted after a canary failed: the document in the instance's userData
// is signed, and counts.
func TestInstancesDocumentCounts(t *testing.T) {
	play(t, 2, func(w *world) {
		w.must("one")
		w.behave(name(0), "fail")
		if _, err := w.push("two"); err == nil {
			t.Fatal("the push succeeded on a node that fails")
		}
		w.behave(name(0), "")
		w.kube.Remove("configmaps", namespace, push.HistoryName(pool))
		if result := w.must("three"); result.Generation != 3 {
			t.Errorf("took generation %d, want 3", result.Generation)
		}
		w.has(3, name(0), name(1))
	})
}

// Who may write the history, but has no key, changes neither the generation nor what other
// pushes do.
func TestHole01HostileHistory(t *testing.T) {
	for what, hostile := range map[string]func(w *world, data map[string]string){
		"another's key": func(w *world, data map[string]string) {
			data["generation-9"] = fmt.Sprintf(`{"generation": %d, "digest": "sha256:0", "userData": %q}`, int64(math.MaxInt64), w.sign(math.MaxInt64, thief(), public(thief()), public(w.key)))
		},
		"another number": func(w *world, data map[string]string) {
			data["generation-9"] = strings.Replace(data["generation-1"], `"generation":1`, `"generation":9223372036854775807`, 1)
		},
		"ten of them": func(w *world, data map[string]string) {
			for i := range 10 {
				data[fmt.Sprintf("generation-%d", i+5)] = fmt.Sprintf(`{"generation": %d, "userData": ""}`, i+5)
			}
		},
	} {
		play(t, 2, func(w *world) {
			w.must("one")
			begun := false
			w.arm.hook = func(fleet.ResourceID, int) { // and while a push runs
				if !begun {
					begun = true
					w.kube.Change("configmaps", namespace, push.HistoryName(pool), func(o runtime.Object) { hostile(w, o.(*corev1.ConfigMap).Data) })
				}
			}
			if result := w.must("two"); result.Generation != 2 {
				t.Errorf("%s: took generation %d", what, result.Generation)
			}
			if result := w.must("three"); result.Generation != 3 || !w.printed("no accepted key signed it") {
				t.Errorf("%s: took generation %d", what, result.Generation)
			}
			w.has(3, name(0), name(1))
			w.rollback(2, 4, "two")
		})
	}
}

// Who may write the model's userData, but has no key, can stop a push until
// --replace-user-data. Neither the generation nor the keys are taken over.
func TestHole01HostileModel(t *testing.T) {
	for what, c := range map[string]struct {
		code     string
		userData func(w *world) string
	}{
		"another's key":                   {"KeyNotAccepted", func(w *world) string { return w.sign(math.MaxInt64, thief()) }},
		"another's key beside the user's": {"KeyNotAccepted", func(w *world) string { return w.sign(math.MaxInt64, thief(), public(thief()), public(w.key)) }},
		"the user's key, another's signature": {"ForeignUserData", func(w *world) string {
			return resigned(w, w.sign(math.MaxInt64, w.key), w.sign(1, thief()))
		}},
	} {
		play(t, 2, func(w *world) {
			w.must("one")
			w.send("PATCH", `{"properties": {"virtualMachineProfile": {"userData": "`+c.userData(w)+`"}}}`)
			puts := w.arm.puts
			_, err := w.push("two")
			if w.refused(err, c.code); w.arm.puts != puts || !strings.Contains(problems(err)[0].WayOut, "--replace-user-data") {
				t.Errorf("%s: got %v and %d PUTs", what, err, w.arm.puts-puts)
			}
			result := w.must("two", func(o *push.Request) { o.ReplaceUserData = true })
			d := w.document(w.userData("0"))
			if result.Generation != 2 || w.model() != 2 || len(d.Keys) != 0 {
				t.Errorf("%s: got %+v, document %+v", what, result, d)
			}
			w.has(2, name(0), name(1))
		})
	}
}

// resigned is a document with another's signature.
func resigned(w *world, userData, other string) string {
	w.Helper()
	const prefix = "# ortet.io/v1alpha1 "
	open := func(userData string) (text, packed string, e map[string]string) {
		raw, err := base64.StdEncoding.DecodeString(userData)
		if err == nil {
			_, packed, _ = strings.Cut(string(raw), prefix)
			packed, _, _ = strings.Cut(packed, "\n")
			var z *gzip.Reader
			if z, err = gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed))); err == nil {
				err = json.NewDecoder(z).Decode(&e)
			}
		}
		if err != nil {
			w.Fatal(err)
		}
		return string(raw), packed, e
	}
	text, packed, e := open(userData)
	_, _, o := open(other)
	e["signature"] = o["signature"]
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(z).Encode(e), z.Close()); err != nil {
		w.Fatal(err)
	}
	text = strings.Replace(text, packed, base64.StdEncoding.EncodeToString(b.Bytes()), 1)
	return base64.StdEncoding.EncodeToString([]byte(text))
}

// machines are the agents of all nodes: their own code, on folders instead of disks.
type machines struct {
	*world
	disks map[string]*disk // by Node
}

// A disk is what one machine keeps.
type disk struct {
	root   string
	record []byte
}

func (d *disk) Current() (files.Set, []byte, error)                          { return nil, d.record, nil }
func (d *disk) Pending() ([]byte, bool, error)                               { return nil, false, nil }
func (d *disk) Drift() ([]string, error)                                     { return nil, nil }
func (d *disk) Forget() error                                                { d.record = nil; return nil }
func (d *disk) Recover(context.Context) (bool, error)                        { return false, nil }
func (d *disk) Settle(context.Context) (a wire.ConfigurationAnswer, ok bool) { return a, false }
func (d *disk) Apply(_ context.Context, document nodeconfig.Document, record string) wire.ConfigurationAnswer {
	d.record = []byte(record)
	return wire.ConfigurationAnswer{State: wire.ConfigurationApplied, Generation: document.Generation}
}

// apply has a machine's agent read its userData and answer.
func (m *machines) apply(instance, node string) {
	d := m.disks[node]
	metadata := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(out).Encode(map[string]any{"userData": m.userData(instance), "virtualMachineScaleSet": map[string]string{"id": string(pool)}})
	}))
	defer metadata.Close()
	a, ok, err := agent.Boot(context.Background(), agent.Options{Root: d.root, Metadata: metadata.URL, Store: d, Applier: d, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.Error(err)
	} else if ok {
		m.write(node, a)
	}
}

// Model, history and one node are at the highest number that there is, in documents that
// the user's key signed: a push and a rollback are refused with the way back, which ends
// on every node, and the pushes after it need nothing.
func TestHole01ResetGeneration(t *testing.T) {
	for what, knows := range map[string]func(d *disk, record string) error{
		"in force": func(d *disk, record string) error {
			d.record = []byte(record)
			return nil
		},
		"failed": func(d *disk, _ string) error {
			return agent.State{Pool: strings.ToLower(string(pool)), Generation: math.MaxInt64, Reason: wire.ReasonUnhealthy}.Save(d.root)
		},
	} {
		t.Run(what, func(t *testing.T) {
			disks := map[string]*disk{}
			for i := range 3 {
				d := &disk{root: t.TempDir()}
				disks[name(i)] = d
				for _, folder := range []string{"etc/ortet", "var/lib/ortet/config"} {
					if err := os.MkdirAll(filepath.Join(d.root, folder), 0o700); err != nil {
						t.Fatal(err)
					}
				}
			}
			play(t, 3, func(w *world) {
				m := &machines{w, disks}
				w.machine = m.apply
				settings, err := json.Marshal(agent.Settings{Keys: []nodeconfig.PublicKey{public(w.key)}})
				for _, d := range disks {
					err = errors.Join(err, os.WriteFile(filepath.Join(d.root, agent.SettingsFile), settings, 0o600))
				}
				if err != nil {
					t.Fatal(err)
				}
				w.must("one")
				poison := w.sign(math.MaxInt64, w.key)
				w.send("PATCH", `{"properties": {"virtualMachineProfile": {"userData": "`+poison+`"}}}`)
				w.send("PUT", `{"properties": {"userData": "`+poison+`"}}`, "virtualMachines", "0")
				w.kube.Change("configmaps", namespace, push.HistoryName(pool), func(o runtime.Object) {
					o.(*corev1.ConfigMap).Data["generation-9223372036854775807"] = fmt.Sprintf(`{"generation": 9223372036854775807, "userData": %q}`, poison)
				})
				if err := knows(disks[name(0)], poison); err != nil {
					t.Fatal(err)
				}
				w.write(name(0), wire.ConfigurationAnswer{Generation: math.MaxInt64, Wanted: math.MaxInt64, State: wire.ConfigurationApplied})
				w.change(name(0), func(n *corev1.Node) {
					metav1.SetMetaDataAnnotation(&n.ObjectMeta, wire.ConfigurationWanted, fmt.Sprint(int64(math.MaxInt64)))
				})
				puts := w.arm.puts
				_, err = w.push("two")
				w.refused(err, "GenerationTooHigh")
				_, err = w.rollout().Rollback(w.ctx, pool, 1, push.Request{Key: w.key})
				w.refused(err, "GenerationTooHigh")
				if _, err = w.rollout().Plan(w.ctx, pool, config("two")); len(problems(err)) != 1 || w.arm.puts != puts {
					t.Errorf("the plan: %v, and %d PUTs", err, w.arm.puts-puts)
				}
				reset := func(o *push.Request) { o.ResetGeneration = true }
				if result := w.must("two", reset); result.Generation != 2 || w.model() != 2 {
					t.Errorf("the reset has %+v, model %d", result, w.model())
				}
				w.has(2, name(0), name(1), name(2))
				// The same again, with and without it, goes on with the same generation.
				if result := w.must("two", reset); result.Generation != 2 {
					t.Errorf("the reset again took generation %d", result.Generation)
				}
				if result := w.must("two"); result.Generation != 2 {
					t.Errorf("the same content took generation %d", result.Generation)
				}
				if result := w.must("three"); result.Generation != 3 || w.model() != 3 {
					t.Errorf("the push after it has %+v, model %d", result, w.model())
				}
				w.has(3, name(0), name(1), name(2))
			})
		})
	}
}

// A newer push ended while an older one waited to write: that replaces nothing newer.
func TestHole05OlderPushReplacesNothingNewer(t *testing.T) {
	play(t, 2, func(w *world) {
		w.arm.onSend = func(method string) {
			if method == http.MethodPatch {
				w.arm.onSend = nil
				w.must("two")
			}
		}
		_, err := w.push("one")
		if !fleet.Is(err, fleet.KindHeld) || w.model() != 2 {
			t.Errorf("got %v, and generation %d in the model", err, w.model())
		}
		w.has(2, name(0), name(1))
	})
	play(t, 2, func(w *world) {
		w.arm.hook = func(id fleet.ResourceID, _ int) {
			if id.Name() == "1" {
				w.arm.hook = nil
				w.must("two")
			}
		}
		_, err := w.push("one")
		if d := w.document(w.userData("1")); !fleet.Is(err, fleet.KindHeld) || d == nil || d.Generation != 2 {
			t.Errorf("got %v, and the instance has %+v", err, d)
		}
	})
}

// A new cluster has a pool of the same name, whose nodes are of an image of the old one's:
// they know a generation whose document no one has.
func TestHole01DocumentsWereLost(t *testing.T) {
	play(t, 2, func(w *world) {
		for i := range 2 {
			w.write(name(i), wire.ConfigurationAnswer{Generation: 7, Wanted: 7, State: wire.ConfigurationApplied})
		}
		_, err := w.push("one")
		w.refused(err, "GenerationNotSigned")
		if all := problems(err); len(all) != 1 || !strings.Contains(all[0].WayOut, "--after-generation") {
			t.Errorf("got %+v", all)
		}
		after := func(o *push.Request) { o.AfterGeneration = 7 }
		for range 2 { // the same command goes on
			if result := w.must("one", after); result.Generation != 8 || w.model() != 8 {
				t.Errorf("got %+v, model %d", result, w.model())
			}
		}
		w.has(8, name(0), name(1))
		if result := w.must("two"); result.Generation != 9 {
			t.Errorf("got %+v", result)
		}
	})
}

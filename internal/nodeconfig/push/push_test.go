package push_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/nodeconfig/push"
	"github.com/ortet/ortet/internal/workflow"
)

func two(o *push.Request) { o.MaxUnavailable = "2" }

func TestPush(t *testing.T) {
	play(t, 5, func(w *world) {
		result := w.must("one", two)
		if result.Generation != 1 || len(result.Nodes) != 5 || len(result.Left) != 0 || w.model() != 1 {
			t.Errorf("got %+v, and model %d; want generation 1 on 5 nodes and in the model", result, w.model())
		}
		w.has(1, name(0), name(1), name(2), name(3), name(4))
		if w.most != 2 {
			t.Errorf("%d nodes were changed at once, want 2", w.most)
		}
		if !w.printed("canary " + name(0) + ": generation 1 applied after ") {
			t.Errorf("the canary was not reported: %q", w.lines)
		}

		// The same again changes nothing.
		puts := w.arm.puts
		if again := w.must("one"); again.Generation != 1 || w.arm.puts != puts || !w.printed("nothing to do") {
			t.Errorf("the same content again: generation %d, %d PUTs", again.Generation, w.arm.puts-puts)
		}

		if w.must("two", two).Generation != 2 {
			t.Error("other content did not get generation 2")
		}
		status, err := w.rollout().Status(w.ctx, pool)
		if err != nil || status.Model != 2 || len(status.History) != 2 || status.History[0].Generation != 2 || status.History[0].By != "ada@desk" || status.Nodes[4].Generation != 2 {
			t.Errorf("status is %+v, %v", status, err)
		}
	})
}

// A Node that is not the instance that it names gets no push; where none of the pool is left, nothing is
// written, since without Nodes all instances would be changed at once.
func TestHolePushToNodesOfNoMachine(t *testing.T) {
	play(t, 2, func(w *world) {
		lies := func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "6c5e9f1e-6d5b-4f0e-8a9d-0c1b2a3f4e5d" }
		w.change(name(1), lies)
		if result := w.must("one"); len(result.Nodes) != 1 || result.Nodes[0].Name != name(0) {
			t.Errorf("pushed to %v, want %s alone", result.Nodes, name(0))
		}
		w.change(name(0), lies)
		puts := w.arm.puts
		_, err := w.push("two")
		if w.refused(err, "NoNodeOfThePool"); w.arm.puts != puts {
			t.Errorf("%d instances or models were changed", w.arm.puts-puts)
		}
	})
}

// Nodes of k3s with names of their own name no instance: their vmIds alone show that the pool has Nodes.
func TestHolePushToNodesOfOtherNames(t *testing.T) {
	play(t, 2, func(w *world) {
		_, vms := w.machines()
		for i, vm := range vms {
			w.kube.Remove("nodes", "", "pool100000"+i)
			w.kube.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + i}, Spec: corev1.NodeSpec{ProviderID: "k3s://agent-" + i},
				Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: vm}}})
		}
		puts := w.arm.puts
		_, err := w.push("one")
		if w.refused(err, "NoNodeOfThePool"); w.arm.puts != puts {
			t.Errorf("%d instances or models were changed", w.arm.puts-puts)
		}
	})
}

// rollback goes back, and wants what the pool has then.
func (w *world) rollback(to, generation int64, content string) {
	w.Helper()
	result, err := w.rollout().Rollback(w.ctx, pool, to, push.Request{Key: w.key})
	if d := w.document(w.userData("0")); err != nil || result.Generation != generation || d == nil || d.Config.Files[0].Content != content {
		w.Errorf("rollback to %d: generation %d, %+v, %v; want %d with %q", to, result.Generation, d, err, generation, content)
	}
}

func TestRollback(t *testing.T) {
	play(t, 2, func(w *world) {
		w.must("one")
		_, err := w.rollout().Rollback(w.ctx, pool, 0, push.Request{Key: w.key})
		w.refused(err, "NoSuchGeneration")

		// Two failed pushes are left behind: the model has what all other nodes have.
		w.behave(name(0), "fail")
		_, first := w.push("two")
		_, second := w.push("three")
		if first == nil || second == nil {
			t.Fatalf("got %v and %v", first, second)
		}
		// So is a rollback that failed: the same command goes on with it.
		if _, err := w.rollout().Rollback(w.ctx, pool, 0, push.Request{Key: w.key}); err == nil {
			t.Error("the rollback succeeded on a node that fails")
		}
		w.behave(name(0), "")
		_, err = w.rollout().Rollback(w.ctx, pool, 0, push.Request{Key: w.key})
		w.refused(err, "FailedEarlier")
		result, err := w.rollout().Rollback(w.ctx, pool, 0, push.Request{Key: w.key, Retry: true})
		if err != nil || result.ContentOf != 1 || result.Generation != 5 {
			t.Errorf("got %+v, %v", result, err)
		}
		w.has(5, name(0), name(1))
		w.rollback(0, 6, "three") // it had ended: back to where it began
		w.rollback(0, 7, "one")
		w.rollback(2, 8, "two")
		_, err = w.rollout().Rollback(w.ctx, pool, 9, push.Request{Key: w.key})
		w.refused(err, "NoSuchGeneration")

		// One that was interrupted, too.
		ctx, cancel := context.WithCancel(w.ctx)
		puts := w.arm.puts
		w.arm.hook = func(_ fleet.ResourceID, put int) {
			if put == puts+2 {
				cancel()
			}
		}
		_, err = w.rollout().Rollback(ctx, pool, 0, push.Request{Key: w.key})
		if workflow.ExitCode(err) != workflow.ExitInterrupted {
			t.Errorf("got %v", err)
		}
		w.rollback(0, 9, "one")
		w.has(9, name(0), name(1))
	})
}

func TestCanaryFails(t *testing.T) {
	for how, want := range map[string]string{"fail": "Failed: Unhealthy: kubelet did not start", "refuse": "NotPrepared", "silent": "never answered", "wait": "Waiting: NodeNotReady"} {
		t.Run(how, func(t *testing.T) {
			play(t, 3, func(w *world) {
				w.behave(name(1), how)
				result, err := w.push("one", func(o *push.Request) { o.Canary = name(1) })
				if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the model was not changed") || strings.Contains(err.Error(), "many lines") || w.printed("many lines") {
					t.Errorf("got %v; want a failure that says %q", err, want)
				}
				if w.arm.puts != 1 || w.model() != 0 || result.Generation != 1 || len(result.Nodes) != 3 {
					t.Errorf("%d PUTs, model %d, result %+v; want the canary alone touched", w.arm.puts, w.model(), result)
				}
			})
		})
	}
}

// TestOutcomePushThatChangedNodes: exit code 1 is for a pool that is as it was.
func TestOutcomePushThatChangedNodes(t *testing.T) {
	for failing, left := range map[string]string{
		name(0): "0 of 3 nodes have generation 1, and the model does not have it",
		name(1): "1 of 3 nodes have generation 1, and the model has it",
	} {
		play(t, 3, func(w *world) {
			w.behave(failing, "fail")
			_, err := w.push("one", func(o *push.Request) { o.Canary = name(0) })
			if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), left) || strings.Contains(err.Error(), "config rollback") {
				t.Errorf("exit %d: %v; want 4 and %q, and no way back from the first generation", workflow.ExitCode(err), err, left)
			}
			w.behave(failing, "")
			w.must("two")
			w.behave(failing, "silent")
			for range 2 { // the second one resumes the first, and writes nothing
				_, err := w.push("three", func(o *push.Request) { o.Canary = name(0) })
				if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), "ortet config rollback pool1") {
					t.Errorf("exit %d: %v; want 4 and the way back", workflow.ExitCode(err), err)
				}
			}
		})
	}
}

// A canary that is lost before it has answered is no reason to go on.
func TestCanaryLost(t *testing.T) {
	for how, lose := range map[string]func(w *world){
		"not Ready": func(w *world) {
			w.change(name(0), func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		},
		"deleted": func(w *world) { w.kube.Remove("nodes", "", name(0)) },
	} {
		play(t, 2, func(w *world) {
			w.arm.onGet = func(id fleet.ResourceID) {
				if id.Name() == "0" {
					lose(w)
				}
			}
			_, err := w.push("one")
			want := map[bool]int{true: workflow.ExitNeedsPerson, false: workflow.ExitFailed}[w.arm.puts > 0]
			if workflow.ExitCode(err) != want || !strings.Contains(err.Error(), "canary "+name(0)) || w.model() != 0 {
				t.Errorf("%s: got %v, model %d", how, err, w.model())
			}
			if w.must("one"); w.model() != 1 {
				t.Errorf("%s: the push after it left model %d", how, w.model())
			}
		})
	}
}

// A configuration that a node failed needs --retry, and then has another generation.
func TestRetry(t *testing.T) {
	play(t, 2, func(w *world) {
		w.behave(name(0), "fail")
		if _, err := w.push("one"); workflow.ExitCode(err) != workflow.ExitNeedsPerson {
			t.Fatalf("got %v", err)
		}
		w.behave(name(0), "")
		_, err := w.push("one")
		w.refused(err, "FailedEarlier")
		if result := w.must("one", func(o *push.Request) { o.Retry = true }); result.Generation != 2 {
			t.Errorf("the retry has generation %d, want 2", result.Generation)
		}
		w.has(2, name(0), name(1))
	})
}

// A node that refused a generation is asked again by a newer one, since it may be prepared
// by now.
func TestRefusedByNode(t *testing.T) {
	play(t, 2, func(w *world) {
		w.behave(name(0), "refuse")
		if _, err := w.push("one"); workflow.ExitCode(err) != workflow.ExitNeedsPerson {
			t.Fatalf("got %v", err)
		}
		w.behave(name(0), "")
		if result := w.must("one"); result.Generation != 2 {
			t.Errorf("the push after the refusal has generation %d, want 2", result.Generation)
		}
		w.has(2, name(0), name(1))
	})
}

func TestWaveFails(t *testing.T) {
	play(t, 6, func(w *world) {
		w.must("one", func(o *push.Request) { o.MaxUnavailable = "50%" })
		w.behave(name(2), "fail")
		result, err := w.push("two", two)
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), name(2)) || strings.Contains(err.Error(), name(1)) {
			t.Errorf("got %v; want a failure that names %s alone", err, name(2))
		}
		// The wave of nodes 1 and 2 ended; those after it are as they were.
		w.has(2, name(0), name(1))
		w.has(1, name(2), name(3), name(4), name(5))
		if w.model() != 2 || result.Nodes[2].State != "Failed" || len(result.Left) != 3 || result.Left[0].Name != name(3) {
			t.Errorf("model %d, result %+v; want the last three nodes left", w.model(), result)
		}
		w.behave(name(2), "")
		if back := w.must("one", two); back.Generation != 3 {
			t.Errorf("the earlier content has generation %d, want 3", back.Generation)
		}
		w.has(3, name(0), name(1), name(2), name(3), name(4), name(5))
	})
}

// A push that was stopped at any PUT goes on with its generation when it is run again.
func TestInterrupted(t *testing.T) {
	for stop := 1; stop <= 4; stop++ {
		play(t, 4, func(w *world) {
			ctx, cancel := context.WithCancel(w.ctx)
			w.arm.hook = func(_ fleet.ResourceID, put int) {
				if put == stop {
					cancel()
				}
			}
			result, err := w.rollout().Push(ctx, pool, push.Request{Config: config("one"), Key: w.key})
			if workflow.ExitCode(err) != workflow.ExitInterrupted || !strings.Contains(err.Error(), "have generation 1") || result.Generation != 1 {
				t.Errorf("stopped at PUT %d: got %v, %+v", stop, err, result)
			}
			w.arm.hook = nil
			if result := w.must("one"); result.Generation != 1 || w.model() != 1 {
				t.Errorf("stopped at PUT %d: went on with generation %d, model %d", stop, result.Generation, w.model())
			}
			w.has(1, name(0), name(1), name(2), name(3))
		})
	}
}

// A push that was stopped after any line that it printed, or while the model changes,
// ends when it is run again.
func TestInterruptedAnywhere(t *testing.T) {
	for stop := 0; ; stop++ {
		printed := 0
		play(t, 3, func(w *world) {
			w.kube.Remove("nodes", "", name(2)) // an instance without a Node
			ctx, cancel := context.WithCancel(w.ctx)
			r := w.rollout()
			r.Report = func(line string) {
				if printed++; printed == stop {
					cancel()
				}
			}
			if stop == 0 {
				w.arm.onSend = func(method string) {
					if method == http.MethodPatch {
						cancel()
					}
				}
			}
			_, err := r.Push(ctx, pool, push.Request{Config: config("one"), Key: w.key})
			w.arm.onSend = nil
			if ctx.Err() == nil {
				return // all lines were tried
			}
			if err != nil && workflow.ExitCode(err) != workflow.ExitInterrupted {
				t.Errorf("stopped at line %d: got %v", stop, err)
			}
			if result := w.must("one"); result.Generation != 1 || w.model() != 1 {
				t.Errorf("stopped at line %d: went on with generation %d, model %d", stop, result.Generation, w.model())
			}
			w.has(1, name(0), name(1))
			if d := w.document(w.userData("2")); d == nil || d.Generation != 1 {
				t.Errorf("stopped at line %d: instance 2 has the document %+v", stop, d)
			}
		})
		if stop > 0 && printed < stop {
			if stop < 5 {
				t.Errorf("a push printed %d lines", printed)
			}
			return
		}
	}
}

// A PUT meets another operation on the instance, or a Resource Manager that does not know
// the instance for some seconds: it is tried again.
func TestInstanceRefusesForAWhile(t *testing.T) {
	for what, f := range map[string]azsim.Fault{
		"busy":            {Path: "/virtualMachines/[01]$", Method: "PUT", Effect: azsim.EffectError, Status: http.StatusConflict, Code: "OperationNotAllowed", Count: 4},
		"missing":         {Path: "/virtualMachines/1$", Method: "PUT", Effect: azsim.EffectError, Status: http.StatusNotFound, Code: "ResourceNotFound", Count: 2},
		"canary missing":  {Path: "/virtualMachines/0$", Effect: azsim.EffectError, Status: http.StatusNotFound, Code: "ResourceNotFound", Count: 3},
		"preempted":       {Path: "/virtualMachines/1$", Method: "PUT", Effect: azsim.EffectFailAtEnd, Code: "OperationPreempted", Count: 1},
		"out of order":    {Path: "/virtualMachines/1$", Method: "PUT", Effect: azsim.EffectFailAtEnd, Code: "InternalExecutionError", Count: 1},
		"scale set busy":  {Path: "/virtualMachineScaleSets/pool1$", Method: "PATCH", Effect: azsim.EffectError, Status: http.StatusConflict, Code: "OperationNotAllowed", Count: 2},
		"read throttling": {Path: "/virtualMachines", Method: "GET", Effect: azsim.EffectThrottle, Count: 2},
	} {
		t.Run(what, func(t *testing.T) {
			play(t, 3, func(w *world) {
				if err := w.azure.AddFault(f); err != nil {
					t.Fatal(err)
				}
				w.must("one")
				w.has(1, name(0), name(1), name(2))
				if faults := w.azure.FaultsNow(); len(faults) != 1 || faults[0].Met != f.Count {
					t.Errorf("the fault was met otherwise: %+v", faults)
				}
			})
		})
	}
}

// A PUT that goes on failing ends the push, and the model and other nodes have what they
// had; those before it keep the configuration.
func TestInstanceRefuses(t *testing.T) {
	play(t, 3, func(w *world) {
		if err := w.azure.AddFault(azsim.Fault{Path: "/virtualMachines/1$", Method: "PUT", Effect: azsim.EffectError, Status: http.StatusConflict, Code: "OperationNotAllowed"}); err != nil {
			t.Fatal(err)
		}
		result, err := w.push("one", func(o *push.Request) { o.Timeout = time.Minute })
		if workflow.ExitCode(err) != workflow.ExitNeedsPerson || !strings.Contains(err.Error(), "OperationNotAllowed") || len(result.Left) != 2 || result.Took > 4*time.Minute {
			t.Errorf("got %v, %+v", err, result)
		}
		w.has(1, name(0))
		w.has(0, name(1), name(2))
	})
}

// The history is deleted in the middle: the push ends, and the next one takes a newer
// generation than any node knows.
func TestHistoryDeleted(t *testing.T) {
	play(t, 3, func(w *world) {
		w.must("one")
		w.arm.hook = func(_ fleet.ResourceID, put int) {
			if put == 5 {
				w.kube.Remove("configmaps", namespace, push.HistoryName(pool))
			}
		}
		w.must("two")
		if got := w.must("three").Generation; got != 3 {
			t.Errorf("the next generation is %d, want 3", got)
		}
		w.has(3, name(0), name(1), name(2))
	})
}

// Of two pushes at once one wins; one that begins later takes over, and the first stops.
func TestTwoPushes(t *testing.T) {
	play(t, 4, func(w *world) {
		var second error
		done := make(chan struct{})
		w.arm.hook = func(_ fleet.ResourceID, put int) {
			if put == 2 {
				go func() {
					defer close(done)
					_, second = w.push("two")
				}()
			}
		}
		_, first := w.push("one")
		if workflow.ExitCode(first) != workflow.ExitNeedsPerson || !strings.Contains(first.Error(), "another push") {
			t.Errorf("the first push ended with %v; want that another push took over", first)
		}
		<-done
		if second != nil {
			t.Error(second)
		}
		w.has(2, name(0), name(1), name(2), name(3))
	})
	play(t, 2, func(w *world) {
		// Both read the history before either writes it.
		var both sync.WaitGroup
		both.Add(2)
		errs := make(chan error, 2)
		for _, content := range []string{"one", "two"} {
			r := w.rollout()
			access := w.kube.Config("operator")
			var reads atomic.Int32
			access.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTrip(func(request *http.Request) (*http.Response, error) {
					response, err := next.RoundTrip(request)
					if strings.Contains(request.URL.Path, "/configmaps/") && request.Method == http.MethodGet && reads.Add(1) == 1 {
						both.Done()
						both.Wait()
					}
					return response, err
				})
			})
			r.Kube = kubernetes.NewForConfigOrDie(access)
			go func() {
				_, err := r.Push(w.ctx, pool, push.Request{Config: config(content), Key: w.key})
				errs <- err
			}()
		}
		lost, won := <-errs, <-errs
		if won != nil {
			t.Errorf("no push won: %v and %v", lost, won)
		}
		w.refused(lost, "OtherPush")
		w.has(1, name(0), name(1))
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An autoscaler adds two machines and removes one while the waves run.
func TestAutoscaler(t *testing.T) {
	play(t, 4, func(w *world) {
		w.arm.hook = func(_ fleet.ResourceID, put int) {
			switch put {
			case 2:
				w.send("PATCH", `{"sku": {"name": "Standard_D2s_v5", "capacity": 6}}`)
				for id, node := range w.instances() {
					if w.kube.Node(node) == nil && !slices.Contains([]string{"0", "1", "2", "3"}, id) {
						w.join(id, node)
					}
				}
			case 3:
				w.send("DELETE", "", "virtualMachines", "3")
				w.kube.Remove("nodes", "", name(2)) // its machine is there still
			}
		}
		result := w.must("one")
		left := w.instances()
		if len(left) != 5 {
			t.Errorf("instances are %v", left)
		}
		for _, node := range left {
			if node != name(2) {
				w.has(1, node)
			}
		}
		for _, l := range result.Left {
			if l.Instance != "pool1_2" {
				t.Errorf("%+v was left", l)
			}
		}
	})
}

// An instance is being deleted when its turn comes, and its Node is still Ready.
func TestInstanceIsBeingDeleted(t *testing.T) {
	play(t, 3, func(w *world) {
		w.arm.hook = func(_ fleet.ResourceID, put int) {
			if put == 2 {
				if _, err := w.arm.Resources.Send(w.ctx, "delete", "DELETE", pool.Child("virtualMachines", "1"), version, nil); err != nil {
					t.Error(err)
				}
			}
		}
		w.must("one")
		w.has(1, name(0), name(2))
	})
}

// A Node that is not Ready, and an instance without a Node, get the userData and are not
// awaited.
func TestNotAwaited(t *testing.T) {
	play(t, 3, func(w *world) {
		w.change(name(0), func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		w.kube.Remove("nodes", "", name(2))
		result := w.must("one")
		w.has(1, name(1))
		if len(result.Left) != 2 || !strings.Contains(result.Left[0].Message, "not Ready") || !strings.Contains(result.Left[1].Message, "no Node") {
			t.Errorf("left are %+v", result.Left)
		}
		for _, id := range []string{"0", "1", "2"} {
			if d := w.document(w.userData(id)); d == nil || d.Generation != 1 {
				t.Errorf("instance %s has the document %+v", id, d)
			}
		}
	})
	play(t, 1, func(w *world) {
		w.change(name(0), func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		if w.must("one"); w.model() != 1 || !w.printed("no Ready Node") {
			t.Errorf("model %d, lines %q", w.model(), w.lines)
		}
	})
}

// A machine whose Node joins after it got the userData is awaited, and k3s' provider ids
// name no instance.
func TestNodeJoinsLater(t *testing.T) {
	play(t, 2, func(w *world) {
		w.kube.Remove("nodes", "", name(1))
		w.arm.hook = func(id fleet.ResourceID, _ int) {
			if strings.HasSuffix(string(id), "/1") {
				w.join("1", name(1))
				w.change(name(1), func(n *corev1.Node) { n.Spec.ProviderID = "k3s://" + name(1) })
				w.arm.hook = nil
			}
		}
		if result := w.must("one"); len(result.Left) != 0 || len(result.Nodes) != 2 {
			t.Errorf("got %+v", result)
		}
		w.has(1, name(0), name(1))
	})
}

func TestTimeout(t *testing.T) {
	play(t, 1, func(w *world) {
		w.behave(name(0), "silent")
		began := time.Now()
		_, err := w.push("one", func(o *push.Request) { o.Timeout = time.Minute })
		if took := time.Since(began); err == nil || took < time.Minute || took > 2*time.Minute {
			t.Errorf("gave up after %s with %v; want 1 min", took, err)
		}
	})
}

// A large pool takes about as long as is said before.
func TestLargePool(t *testing.T) {
	play(t, 120, func(w *world) {
		result := w.must("one", func(o *push.Request) { o.MaxUnavailable = "25%" })
		expected := push.Expected(120, 30, 34*time.Second)
		t.Logf("120 nodes, 30 at once: %s of virtual time, expected %s", result.Took, expected)
		if len(result.Nodes) != 120 || w.most > 30 || result.Took < expected/2 || result.Took > 2*expected {
			t.Errorf("%d nodes, %d at once, took %s; expected %s", len(result.Nodes), w.most, result.Took, expected)
		}
	})
	play(t, 9, func(w *world) {
		plan, err := w.rollout().Plan(w.ctx, pool, config("one"))
		if err != nil {
			t.Fatal(err)
		}
		if took := w.must("one").Took; took < plan.Expected*3/4 || took > plan.Expected*4/3 {
			t.Errorf("9 nodes one at a time took %s; the plan expected %s", took, plan.Expected)
		}
	})
}

// What does not fit into userData is refused before anything changes.
func TestTooLarge(t *testing.T) {
	play(t, 1, func(w *world) {
		noise := make([]byte, 64<<10)
		for i := range noise {
			noise[i] = 'a' + byte(rand.IntN(26)) // #nosec G404 -- content that gzip cannot pack away
		}
		_, err := w.push(string(noise))
		w.refused(err, "CannotSign")
		if err == nil || !strings.Contains(err.Error(), "too large") || w.arm.puts != 0 {
			t.Errorf("got %v and %d PUTs", err, w.arm.puts)
		}
	})
}

// TestHole08: a push during a scale-up waits for it, and its nodes come.
func TestHole08PushDuringAScaleUp(t *testing.T) {
	play(t, 3, func(w *world) {
		op, err := w.arm.Resources.Send(w.ctx, "scale", http.MethodPatch, pool, version, json.RawMessage(`{"sku": {"name": "Standard_D2s_v5", "tier": "Standard", "capacity": 6}}`))
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		w.must("one")
		if _, err := op.Wait(w.ctx); err != nil {
			w.Errorf("the push ended the scale-up: %v", err)
		}
		if n := len(w.instances()); n != 6 {
			w.Errorf("%d machines, want 6", n)
		}
	})
}

// What a push says of a node that did not answer in time is about the node, however slow
// the client's own limit of requests is.
func TestHole09TimeoutSaysWhy(t *testing.T) {
	for _, c := range []struct {
		qps   float32
		burst int // 5 are spent before the Node is read that is awaited
		says  string
	}{{0.3, 7, "it has never answered"}, {0.001, 5, "its Node was not read"}} {
		play(t, 1, func(w *world) {
			w.behave(name(0), "silent")
			access := w.kube.Config("operator")
			access.QPS, access.Burst = c.qps, c.burst
			r := w.rollout()
			r.Kube = kubernetes.NewForConfigOrDie(access)
			_, err := r.Push(w.ctx, pool, push.Request{Config: config("one"), Key: w.key, Timeout: time.Minute})
			if err == nil || strings.Contains(err.Error(), "rate:") || strings.Contains(err.Error(), "limiter") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v requests a second: got %v; want it to say %q", c.qps, err, c.says)
			}
		})
	}
}

// A node that stopped in the middle is no fault of the configuration.
func TestHole09AdviceAfterInterruptedNode(t *testing.T) {
	play(t, 2, func(w *world) {
		for _, n := range []string{name(0), name(1)} {
			w.behave(n, "interrupted")
		}
		_, err := w.push("one")
		if err == nil || strings.Contains(err.Error(), "correct the configuration") || !strings.Contains(err.Error(), "the same command with --retry") {
			t.Errorf("got %v", err)
		}
		_, err = w.push("one")
		w.refused(err, "FailedEarlier")
		if all := problems(err); len(all) != 1 || strings.Contains(all[0].WayOut, "correct") || !strings.Contains(all[0].WayOut, "--retry") {
			t.Errorf("got %+v", all)
		}
		w.behave(name(0), "")
		w.behave(name(1), "")
		w.must("one", func(o *push.Request) { o.Retry = true })
		w.has(2, name(0), name(1))
	})
}

// A percentage allows no more nodes at once than it says, and one at least.
func TestPercentageIsALimit(t *testing.T) {
	for n, most := range map[int]int{3: 1, 7: 1, 11: 2} { // 25 % of them, rounded down
		play(t, n, func(w *world) {
			w.must("one", func(o *push.Request) { o.MaxUnavailable = "25%" })
			if w.most != most {
				t.Errorf("%d of %d nodes were changed at once, want %d", w.most, n, most)
			}
		})
	}
}

// The history keeps the newest ten generations, which is what docs say and a ConfigMap holds.
func TestHistoryIsLimited(t *testing.T) {
	play(t, 1, func(w *world) {
		for i := range 13 {
			w.must(fmt.Sprint("content ", i))
			status, err := w.rollout().Status(w.ctx, pool)
			if err != nil || len(status.History) != min(i+1, 10) || status.History[0].Generation != int64(i+1) {
				t.Errorf("after %d pushes the history is %+v, %v", i+1, status.History, err)
			}
		}
	})
}

// Only a Ready node can be the canary: of another no answer comes.
func TestCanaryIsReady(t *testing.T) {
	play(t, 2, func(w *world) {
		w.change(name(1), func(n *corev1.Node) {
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].Status = corev1.ConditionFalse
			}
		})
		_, err := w.push("one", func(o *push.Request) { o.Canary = name(1) })
		w.refused(err, "BadCanary")
		if w.arm.puts > 0 {
			t.Errorf("%d instances were changed", w.arm.puts)
		}
	})
}

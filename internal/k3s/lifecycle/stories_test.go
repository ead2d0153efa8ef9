package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
)

// A story is a command that its operator gives again until it ends well. Each of its writes
// meets something, the first time that it is made.
type story struct {
	name    string
	prepare func(w *world)
	do      func(w *world, p *process) (any, error)
	ends    string                  // the world in the end, as its stage tells it
	says    func(result any) string // what is missing in what an undisturbed run said, "" for nothing
	meets   map[string]string       // what else happens, and the world in the end of it
	dear    bool                    // lost answers and the like are played with -sweep alone
	without []string                // what cannot happen to it
	chaos   bool                    // it takes machines away undrained
	fit     bool                    // it drains only as far as there is time
}

// What a write meets. Each is met by all writes of a command, one after the other.
const (
	nothing    = "nothing"
	killBefore = "killed before"
	killAfter  = "killed after"
	refused    = "refused"
	conflicts  = "conflict"
	lost       = "lost answer"
	passing    = "throttled, or failed for a passing reason"
	scales     = "others scale up just before" // the first PATCH of a scale set
	deletes    = "others delete an agent just before"
	blocks     = "a budget blocks all drains" // of the first run
	noBoot     = "no machine comes up"        // that is started or made in the first run
)

// A world is a simulated Azure, with what happened there.
type world struct {
	*site   // the way of others, and of the judge
	story   story
	happens string
	guard   func(w *world, p *process, r *http.Request, body []byte) // judges a write before it is made
	nodes   *kubelets                                                // nil without an API server

	mu          sync.Mutex
	met         map[string]bool
	trace       []string
	from        string   // when the command began, as Azure writes times
	interrupted []string // what ended runs before their time
}

func (w *world) wrong(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Errorf("%s; %s: %s\n%s", w.story.name, w.happens, fmt.Sprintf(format, args...), strings.Join(w.trace, "\n"))
}

// A process is one run of a command.
type process struct {
	*site
	w         *world
	next      *azsim.Transport
	kill      context.CancelFunc
	happened  []string // to its writes
	disturbed bool     // by anything
}

func (w *world) process() *process {
	ctx, kill := context.WithCancel(w.ctx)
	p := &process{w: w, next: w.s.Transport(), kill: kill}
	options := arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: w.s.Credential(azsim.DefaultClientID), Transport: p, Version: "test"}
	resources, err := arm.NewResources(options)
	if err != nil {
		w.Fatal(err)
	}
	cloud, err := arm.New(options)
	if err != nil {
		w.Fatal(err)
	}
	p.site = &site{T: w.T, s: w.s, arm: resources, cloud: cloud, ctx: ctx}
	return p
}

var stamp = regexp.MustCompile(`\d{8}-\d{6}`) // in names that are made up

// decide says what a write meets, "" for nothing.
func (p *process) decide(name string) string {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, fmt.Sprintf("%6.0f s  %s", time.Since(began).Seconds(), name))
	if w.happens == refused { // what is made again, and not refused, is done
		p.happened = slices.DeleteFunc(p.happened, func(made string) bool { return made == name })
	}
	if key := stamp.ReplaceAllString(name, "TIME"); !w.met[key] && p.ctx.Err() == nil {
		patch := strings.HasPrefix(name, "PATCH virtualmachinescalesets/")
		switch {
		case w.happens == scales && (!patch || len(w.met) > 0), w.happens == deletes && (!strings.HasSuffix(name, "agents/delete") || len(w.met) > 0):
			return ""
		case w.happens == refused && len(p.happened) > 0: // what goes on after a refusal shows whether it counts
			return ""
		}
		w.met[key] = true
		what := w.happens
		if what == passing && len(w.met)%2 == 0 {
			what = "error"
		}
		w.trace[len(w.trace)-1] += ": " + what
		switch what {
		case nothing, blocks, noBoot:
			return ""
		}
		p.happened, p.disturbed = append(p.happened, name), true
		return what
	}
	return ""
}

var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of virtual time

// Do implements policy.Transporter.
func (p *process) Do(r *http.Request) (*http.Response, error) {
	if err := p.ctx.Err(); err != nil {
		return nil, err
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return p.next.Do(r)
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	again := func() *http.Request {
		r.Body = io.NopCloser(bytes.NewReader(body))
		return r
	}
	parts := strings.Split(strings.ToLower(strings.TrimPrefix(r.URL.Path, "/subscriptions/"+azsim.DefaultSubscription)), "/")
	if i := len(parts) - 3; i > 0 {
		parts = parts[i:]
	}
	name := r.Method + " " + strings.TrimPrefix(strings.Join(parts, "/"), "microsoft.compute/")
	if strings.HasSuffix(name, "tags/default") {
		name = r.Method + " tags of " + fleet.ResourceID(strings.TrimSuffix(r.URL.Path, "/providers/Microsoft.Resources/tags/default")).Name()
	}
	what := p.decide(name)
	if p.w.guard != nil && what != killBefore {
		p.w.guard(p.w, p, r, body)
	}
	fault := func(f azsim.Fault) (*http.Response, error) {
		return p.next.Do(again().WithContext(azsim.WithFault(r.Context(), f)))
	}
	switch what {
	case killBefore:
		p.kill()
		return nil, context.Canceled
	case refused:
		return fault(azsim.Fault{Effect: azsim.EffectError, Status: 403, Code: "AuthorizationFailed", Message: "The client does not have authorization to perform " + name})
	case conflicts:
		return fault(azsim.Fault{Effect: azsim.EffectError, Status: 409, Code: "Conflict", Message: "Another operation is in progress on the selected resource"})
	case lost:
		return fault(azsim.Fault{Effect: azsim.EffectDropAfter})
	case passing:
		return fault(azsim.Fault{Effect: azsim.EffectThrottle, RetryAfterSeconds: 3})
	case "error":
		return fault(azsim.Fault{Effect: azsim.EffectError})
	case scales:
		p.w.scaled(2)
	case deletes:
		p.w.send(http.MethodPost, pool+"/delete", "2024-07-01", object{"instanceIds": []string{"3"}})
	}
	response, err := p.next.Do(again())
	if err == nil && p.w.nodes != nil && response.StatusCode < 300 {
		p.w.nodes.accepted(strings.ToLower(r.URL.Path), body)
	}
	if what == killAfter {
		p.kill()
		return nil, context.Canceled
	}
	return response, err
}

// kube makes a write to the API server meet what happens.
func (p *process) kube(name string, do func() error) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	what := p.decide(name)
	switch what {
	case killBefore:
		p.kill()
		return context.Canceled
	case refused:
		return &fleet.Error{Op: name, Kind: fleet.KindDenied, Err: errors.New("403 Forbidden")}
	case conflicts:
		return &fleet.Error{Op: name, Kind: fleet.KindConflict, Err: errors.New("409 Conflict")}
	}
	err := do()
	switch what {
	case killAfter:
		p.kill()
		return context.Canceled
	case lost:
		return &fleet.Error{Op: name, Kind: fleet.KindTransient, Err: errors.New("connection reset")}
	}
	return err
}

// scaled has others set the capacity of the pool.
func (w *world) scaled(n int) {
	p, err := w.cloud.Pool(w.ctx, pool)
	if err == nil {
		_, err = w.arm.Send(w.ctx, "scale", http.MethodPatch, pool, "2024-07-01", object{"sku": object{"name": p.Size, "tier": "Standard", "capacity": int(p.Capacity) + n}})
	}
	if err != nil {
		w.Error(err)
	}
}

// tell plays a story until its command ends well, and judges each end.
func (w *world) tell(interruption int) {
	s := w.story
	for run := 1; ; run++ {
		p := w.process()
		if w.nodes != nil {
			w.nodes.blocked = w.happens == blocks && run == 1
			w.nodes.dies(w.happens == noBoot && run == 1)
		}
		from := time.Now()
		result, err := s.do(w, p)
		killed := p.ctx.Err() != nil
		p.kill()
		w.mu.Lock()
		w.trace = append(w.trace, fmt.Sprintf("%6.0f s  run %d: %v", time.Since(began).Seconds(), run, err))
		w.mu.Unlock()
		if d := time.Since(from); d > 4*time.Hour {
			w.wrong("it took %s", d)
		}
		code, what := workflow.ExitCode(err), ""
		if len(p.happened) > 0 {
			what = p.happened[0]
		}
		if err != nil {
			w.interrupted = append(w.interrupted, what)
		}
		w.judge(run, p, killed, code, interruption, err)
		if w.Failed() || run > 80 {
			return
		}
		if err != nil {
			time.Sleep(2 * time.Second)
			continue
		}
		if s.says != nil && len(w.interrupted) == 0 {
			if wrong := s.says(result); wrong != "" {
				w.wrong("it said: %s: %+v", wrong, result)
			}
		}
		return
	}
}

// judge compares what happened in a run with its exit code and its sentence.
func (w *world) judge(run int, p *process, killed bool, code, interruption int, err error) {
	switch what := strings.Join(p.happened, ", "); {
	case killed && code != interruption:
		w.wrong("interrupted at %s, it ends with exit code %d, not %d: %v", what, code, interruption, err)
	case w.happens == refused && what != "" && (err == nil || code == workflow.ExitInterrupted):
		w.wrong("%s was refused, and it ends with exit code %d: %v", what, code, err)
	case w.happens == refused && what != "" && !slices.ContainsFunc(p.happened, func(what string) bool { return w.names(err.Error(), what) }):
		w.wrong("%s was refused, which it does not say: %v", what, err)
	case w.happens == passing && err != nil:
		w.wrong("it ends with exit code %d for a passing reason: %v", code, err)
	case err != nil && (!p.disturbed && run > 1 || w.happens == nothing || w.happens == scales || w.happens == deletes):
		w.wrong("it ends with exit code %d: %v", code, err)
	case run == 1 && (w.happens == noBoot || w.happens == blocks && !w.story.fit) && err == nil:
		w.wrong("it ends with exit code 0")
	case w.happens == blocks && w.story.fit && err != nil:
		w.wrong("it has time for a budget's sake alone, and ends with exit code %d: %v", code, err)
	case w.happens == blocks && err != nil && !strings.Contains(err.Error(), "PodDisruptionBudget default/web"):
		w.wrong("it does not say which budget: %v", err)
	case run > 80:
		w.wrong("it does not end well: %v", err)
	}
}

var ofInstance = regexp.MustCompile(`virtualmachines/(\d+)/`)

// names reports whether a sentence says that a write was refused, and of what.
func (w *world) names(sentence, write string) bool {
	sentence, write = strings.ToLower(sentence), strings.ToLower(write)
	if one := ofInstance.FindStringSubmatch(write); one != nil && w.nodes != nil && !strings.HasPrefix(sentence, "agents_"+one[1]+": ") {
		return false
	}
	words := strings.FieldsFunc(write, func(r rune) bool { return r == ' ' || r == '/' })
	return (strings.Contains(sentence, "403") || strings.Contains(sentence, "authorization")) &&
		(strings.Contains(sentence, words[len(words)-1]) || strings.Contains(sentence, words[len(words)-2]))
}

var sweep = flag.Bool("sweep", false, "play all that may happen in each story, not a part")

// stories plays each with what happens in it.
func stories(t *testing.T, all []story, open func(t *testing.T, s story, happens string)) {
	for i, s := range all {
		t.Run(s.name, func(t *testing.T) {
			kinds, others := []string{nothing, killAfter, refused}, []string{lost, passing, conflicts, killBefore}
			if *sweep {
				kinds = append(kinds, others...)
			} else if !s.dear {
				kinds = append(kinds, others[i%len(others)])
			}
			kinds = slices.DeleteFunc(kinds, func(kind string) bool { return slices.Contains(s.without, kind) })
			for kind := range s.meets {
				if !slices.Contains(kinds, kind) {
					kinds = append(kinds, kind)
				}
			}
			for _, kind := range kinds {
				if !t.Failed() {
					open(t, s, kind)
				}
			}
		})
	}
}

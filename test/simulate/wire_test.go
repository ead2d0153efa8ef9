package simulate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/test/kubesim"
)

// A request is one of ortet's that was sent while a story played.
type request struct {
	name     string // "azure PATCH virtualMachineScaleSets/pool1"
	n        int    // of that name, from 1
	fresh    bool   // a read of what was made within the last 30 s
	ifMatch  bool   // a write on the condition that no other process wrote
	unlisted bool   // a read of the model, of which an extension was deleted within the last 30 s
}

func (r request) side() string { side, _, _ := strings.Cut(r.name, " "); return side }
func (r request) write() bool {
	return !strings.Contains(r.name, " GET ") && !strings.Contains(r.name, " "+accessReviews)
}

func (r request) about() string { return r.name[strings.LastIndex(r.name, " ")+1:] }

// send takes one request of a process over the network: it counts the request, lets
// its latency pass, and has happen what the story says.
func (p *process) send(side, name string, r *http.Request, serve func(*http.Request, *Event) (*http.Response, error)) (_ *http.Response, err error) {
	w, ctx := p.w, r.Context()
	defer w.recovered("a request of "+p.name, &err)
	p.awake()
	name = side + " " + r.Method + " " + name
	// The time of sending is part of the hash; a count would depend on requests that
	// are given up in the instant in which a process dies.
	if err := sleep(ctx, w.between(time.Millisecond, 40*time.Millisecond, p.name, name, time.Since(w.begin))); err != nil {
		return nil, err
	}
	if p.isDead() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	req, events := w.arrived(name, r.Header.Get("If-Match") != "")
	var met *Event
	killed := false
	for _, e := range events {
		w.trace("%s: %s %s", name, e.What, e.Target)
		switch e.What {
		case "kill before":
			return nil, p.dies(ctx)
		case "kill after":
			killed = true
		case "interrupt":
			w.after(w.between(time.Microsecond, time.Millisecond, "interrupt", name, req.n), p.interrupt)
		case "laptop sleeps":
			p.suspend(e.For)
		default:
			if !w.neighbour(e, p) {
				met = &e
				continue
			}
			// What neighbours began is under way before the request is served.
			if err := sleep(ctx, w.between(time.Microsecond, time.Millisecond, "neighbour", name, req.n)); err != nil {
				return nil, err
			}
		}
	}
	if w.isDown(side) {
		return nil, &url.Error{Op: "dial", URL: name, Err: errors.New("connection refused")}
	}
	marked := w.isMarked(p)
	after := w.checkRequest(p, req, r)
	answer, err := serve(r, met)
	marks := marked != w.isMarked(p) && strings.HasPrefix(name, "kube PATCH nodes/")
	after(answer)
	if name == "azure GET virtualMachineScaleSets/"+poolName && err == nil && answer.StatusCode == http.StatusOK {
		w.locked(func() {
			if p.old = time.Now(); faultOf(met).azure.Effect != azsim.EffectStale {
				p.read, p.old = p.old, time.Time{}
			}
		})
	}
	outcome := "no answer"
	if err == nil {
		outcome = answer.Status
	}
	w.trace("%s %s %d: %s", p.name, name, req.n, outcome)
	if killed {
		return nil, p.dies(ctx)
	}
	if p.awake(); marks && (err != nil || answer.StatusCode >= 300 || ctx.Err() != nil) {
		w.locked(func() { p.unaware = true })
	}
	return answer, err
}

// isMarked reports whether the donor of a process is marked as one.
func (w *world) isMarked(p *process) bool {
	n := w.kube.Node(w.nodeName(p.ask.Node))
	return n != nil && n.Annotations[fleet.AnnotationCapture] != ""
}

// sleep waits, or gives the context's cause.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// arrived counts a request and gives the events that are due.
func (w *world) arrived(name string, ifMatch bool) (request, []Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[name]++
	r := request{name: name, n: w.counts[name], ifMatch: ifMatch}
	about := r.about()
	switch {
	case strings.HasPrefix(name, "azure PUT ") && !strings.HasPrefix(about, "virtualMachineScaleSets/"):
		w.written[about] = time.Now()
	case strings.HasPrefix(name, "azure DELETE ") && strings.Contains(about, "/extensions/"):
		w.written["extension"] = time.Now()
	case !r.write():
		r.fresh = time.Since(w.written[about]) < time.Minute/2
		r.unlisted = time.Since(w.written["extension"]) < time.Minute/2 && strings.HasPrefix(name, "azure GET ") && strings.HasSuffix(about, "/"+poolName)
	}
	w.requests = append(w.requests, r)
	var due, later []Event
	for _, e := range w.pending {
		if e.At == name && max(e.N, 1) == r.n {
			due = append(due, e)
			w.happened++
			w.lastEvent = time.Now()
		} else {
			later = append(later, e)
		}
	}
	w.pending = later
	for _, e := range due {
		if faultOf(&e).lasts {
			w.lasting, w.lastsUntil = e, time.Now().Add(time.Minute/2)
		}
	}
	if len(due) == 0 && w.lasting.At == name && time.Now().Before(w.lastsUntil) {
		due = []Event{w.lasting}
	}
	return r, due
}

func (w *world) isDown(side string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.down[side])
}

// azureWire is a process's way to Azure: policy.Transporter.
type azureWire struct{ p *process }

func (a azureWire) Do(r *http.Request) (*http.Response, error) {
	w := a.p.w
	name := w.azureName(r)
	return a.p.send("azure", name, r, func(r *http.Request, met *Event) (*http.Response, error) {
		answer, err := azureFault(met, r, w.azure.Transport().Do)
		if err != nil {
			return answer, err
		}
		if link, err := url.Parse(answer.Header.Get("Azure-AsyncOperation")); err == nil && link.Path != "" && !strings.HasPrefix(name, "operation-of") {
			w.locked(func() { w.operations[path.Base(link.Path)] = "operation-of-" + r.Method + "-" + name })
		}
		if w.story.Pool.Spelling == "upper" {
			err = upperIDs(answer)
		}
		return answer, err
	})
}

// azureName is a request's path without what is the same everywhere.
func (w *world) azureName(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := parts[len(parts)-1]
	for i := len(parts) - 1; i >= 0; i-- {
		if strings.EqualFold(parts[i], "providers") && i+2 < len(parts) {
			parts = parts[i+2:]
			break
		}
	}
	if parts[0] == "locations" && len(parts) == 4 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.operations[last]
	}
	for i := 1; i < len(parts) && w.story.Pool.Spelling == "upper"; i += 2 {
		parts[i] = strings.ToLower(parts[i])
	}
	return w.byNumber(diskID.ReplaceAllString(strings.Join(parts, "/"), ""))
}

// diskID is what Azure ends the name of an instance's disk with; it is another for each seed.
var diskID = regexp.MustCompile(`_[0-9a-f]{32}$`)

var idNames = regexp.MustCompile(`(?i)"/subscriptions/[^/"]+/resourceGroups/[^"]+"`)

// upperIDs spells resource group and names in an answer's ids in upper case.
func upperIDs(answer *http.Response) error {
	body, err := io.ReadAll(answer.Body)
	body = idNames.ReplaceAllFunc(body, func(id []byte) []byte {
		parts := bytes.Split(id, []byte("/"))
		for i := 4; i < len(parts); i += 2 {
			if i != 6 {
				parts[i] = bytes.ToUpper(parts[i])
			}
		}
		return bytes.Join(parts, []byte("/"))
	})
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return err
}

// accessReviews have what they ask for in their bodies only.
const accessReviews = "selfsubjectaccessreviews"

// captureTime is when a capture began, in the names of its pods.
var captureTime = regexp.MustCompile(`-\d{8}-\d{6}`)

// kubeWire is a process's way to Kubernetes: http.RoundTripper.
type kubeWire struct{ p *process }

func (k kubeWire) RoundTrip(r *http.Request) (*http.Response, error) {
	c := kubesim.ParseRequest(r)
	name := k.p.w.byNumber(captureTime.ReplaceAllString(path.Join(c.Namespace, c.Resource, c.Name, c.Subresource, c.Path), ""))
	if c.Resource == accessReviews {
		review, err := readReview(r)
		if err != nil {
			return nil, err
		}
		name += "/" + review
	}
	return k.p.send("kube", name, r, func(r *http.Request, met *Event) (*http.Response, error) {
		return kubeFault(met, r, k.p.w.kube.RoundTrip)
	})
}

// readReview returns what an access review asks for.
func readReview(r *http.Request) (string, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	review, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if a, ok := review.(*authorizationv1.SelfSubjectAccessReview); ok && a.Spec.ResourceAttributes != nil {
		of := a.Spec.ResourceAttributes
		return strings.Join([]string{of.Verb, of.Group, of.Resource, of.Subresource, of.Namespace, of.Name}, "."), nil
	}
	return "other", err
}

// CancelRequest is what an http.Client with a timeout calls; the request's context has
// ended by then.
func (k kubeWire) CancelRequest(*http.Request) {}

package recorded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
)

// Ortet follows each recorded operation by the URL that Azure gave, to the recorded end: as
// azure.Resources for any request, and as azure.Changer where Ortet makes such a change.
func TestAdapterFollowsRecordedOperations(t *testing.T) {
	sessions, _ := recordings(t)
	sent, changes := 0, map[string]int{}
	var wrong []error
	for _, s := range sessions {
		synctest.Test(t, func(t *testing.T) { // the rest is not run after a failure in it
			for n := range s.Interactions {
				i := &s.Interactions[n]
				if i.Method == http.MethodGet || groupOf(typeOf(i)) != usedGroup {
					continue
				}
				sent++
				if err := follow(t, i, s.Interactions[n+1:], send); err != nil {
					wrong = append(wrong, fmt.Errorf("%s: %s %s: azure.Resources: %w", s.Name, i.Method, i.URI, err))
				}
				if change := changeOf(i); change != nil {
					changes[change.Verb()]++
					begin := func(ctx context.Context, o arm.Options, i *interaction) (tree, error) {
						return nil, begin(ctx, o, change)
					}
					if err := follow(t, i, s.Interactions[n+1:], begin); err != nil {
						wrong = append(wrong, fmt.Errorf("%s: %s %s: %s: %w", s.Name, i.Method, i.URI, change.Verb(), err))
					}
				}
			}
		})
	}
	for _, err := range wrong {
		t.Error(err)
	}
	t.Logf("%d requests; as changes of Ortet's: %v", sent, changes)
}

// follow plays one request and its operation, and compares the end.
func follow(t *testing.T, i *interaction, later []interaction, do func(context.Context, arm.Options, *interaction) (tree, error)) error {
	t.Helper()
	azure := &recordedOperation{request: i, later: later, next: map[string]int{}}
	want := azure.end()
	result, err := do(t.Context(), adapterOptions(azure), i)
	var of *fleet.Error
	switch failed := strings.HasPrefix(want, "Failed") || strings.HasPrefix(want, "Canceled"); {
	case azure.wrong != nil:
		return azure.wrong
	case failed && i.Method == http.MethodDelete && i.Status == http.StatusNotFound && err == nil:
		return nil // what is missing is deleted
	case failed && err == nil:
		return fmt.Errorf("no error, recorded %s", want)
	case failed && !errors.As(err, &of):
		return fmt.Errorf("no *fleet.Error: %w", err)
	case failed && !strings.Contains(err.Error(), strings.TrimPrefix(want, "Failed ")):
		return fmt.Errorf("error %w, recorded %s", err, want)
	case !failed && err != nil:
		return err
	case result != nil && azure.last != nil && plain(map[string]any(result)) != plain(azure.last):
		return fmt.Errorf("result %s, recorded %s", plain(map[string]any(result)), plain(azure.last))
	}
	return nil
}

// send is the request as azure.Resources makes it.
func send(ctx context.Context, o arm.Options, i *interaction) (tree, error) {
	r, err := arm.NewResources(o)
	if err != nil {
		return nil, err
	}
	op, err := r.Send(ctx, "change", i.Method, fleet.ResourceID(i.path()), "2021-01-01", i.Request)
	if err != nil {
		return nil, err
	}
	text, err := op.Wait(ctx)
	if err != nil || len(text) == 0 || text[0] != '{' {
		return nil, err
	}
	var result tree
	return result, json.Unmarshal(text, &result)
}

// begin is a change of Ortet's, polled to its end.
func begin(ctx context.Context, o arm.Options, change fleet.Change) error {
	c, err := arm.New(o)
	if err != nil {
		return err
	}
	token, err := c.Begin(ctx, change)
	for err == nil && token != "" {
		var p fleet.Progress
		if p, err = c.Poll(ctx, token); p.Done {
			break
		}
		time.Sleep(p.Wait)
	}
	return err
}

// changeOf is the change that Ortet makes by such a request; nil for others.
func changeOf(i *interaction) fleet.Change {
	id, body := fleet.ResourceID(i.path()), tree{}
	if object, ok := i.Request.(map[string]any); ok {
		body = object
	}
	typ, action := typeOf(i), ""
	if i.Method == http.MethodPost {
		at := strings.LastIndexByte(i.path(), '/')
		id, action = fleet.ResourceID(i.path()[:at]), strings.ToLower(i.path()[at+1:])
	}
	if !fleet.ValidName(id.Name()) {
		return nil // "*": Ortet names instances
	}
	source := fleet.ResourceID(body.text("properties.creationData.sourceResourceId"))
	switch i.Method + " " + typ + " " + action {
	case "PUT " + diskType + " ":
		return fleet.CreateDisk{ID: id, Location: "l", Source: source}
	case "PUT " + snapshotType + " ":
		return fleet.CreateSnapshot{ID: id, Location: "l", Source: source}
	case "PUT " + galleryType + " ":
		return fleet.CreateGallery{ID: id, Location: "l"}
	case "PUT " + definitionType + " ":
		return fleet.CreateDefinition{Definition: fleet.Definition{ID: id, Location: "l"}}
	case "PUT " + versionType + " ":
		return fleet.CreateVersion{ID: id, Location: "l"}
	case "PATCH " + setType + " ":
		return fleet.PatchModel{Pool: id}
	case "DELETE " + diskType + " ":
		return fleet.DeleteDisk{ID: id}
	case "DELETE " + snapshotType + " ":
		return fleet.DeleteSnapshot{ID: id}
	case "DELETE " + versionType + " ":
		return fleet.DeleteVersion{ID: id}
	case "DELETE " + setType + " ":
		return fleet.DeleteScaleSet{Pool: id}
	case "POST " + machineType + " poweroff", "POST " + instanceType + " poweroff":
		return fleet.StopInstance{Instance: id}
	case "POST " + machineType + " deallocate", "POST " + instanceType + " deallocate":
		return fleet.StopInstance{Instance: id, Deallocate: true}
	case "POST " + machineType + " start", "POST " + instanceType + " start":
		return fleet.StartInstance{Instance: id}
	case "POST " + instanceType + " restart":
		return fleet.RestartInstance{Instance: id}
	case "POST " + instanceType + " reimage":
		return fleet.ReimageInstance{Instance: id}
	case "POST " + setType + " deallocate":
		return fleet.DeallocateScaleSet{Pool: id}
	case "POST " + setType + " start":
		return fleet.StartScaleSet{Pool: id}
	case "POST " + setType + " manualupgrade":
		return fleet.UpgradeInstances{Pool: id, Instances: []string{"0"}}
	case "POST " + setType + " delete":
		return fleet.DeleteInstances{Pool: id, Instances: []string{"0"}}
	}
	return nil
}

// A recordedOperation answers a request, polls of its operation in their order, and a GET of
// the resource as it was recorded next.
type recordedOperation struct {
	request *interaction
	later   []interaction
	begun   bool
	next    map[string]int // by URL
	wrong   error
	last    any // of what was answered at the resource's id
}

// polls are the recorded ones of a URL that the request's answer named, in their order.
func (o *recordedOperation) polls(header string) (all []*interaction) {
	at := o.request.Headers[header]
	u, err := url.Parse(at)
	if at == "" || err != nil {
		return nil
	}
	for n := range o.later {
		if i := &o.later[n]; isPoll(i) && operationKey(i.URI) == operationKey(at) && isMonitor(i.URI) == isMonitor(u.RequestURI()) {
			all = append(all, i)
		}
	}
	return all
}

func isMonitor(uri string) bool { return strings.Contains(uri, "monitor=true") }

// end is how the operation ended, as recorded; what was not polled to its end succeeded.
func (o *recordedOperation) end() string {
	if o.request.Status >= http.StatusBadRequest {
		return outcome(o.request.Status, o.request.Response)
	}
	for _, header := range []string{"azure-asyncoperation", "location"} {
		if all := o.polls(header); len(all) > 0 {
			last := all[len(all)-1]
			return outcome(last.Status, last.Response)
		}
	}
	return "Succeeded "
}

func (o *recordedOperation) Do(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		o.begun = true
		return reply(r, o.request.Status, o.request.Headers, o.request.Response)
	}
	for _, header := range []string{"azure-asyncoperation", "location"} {
		at := o.request.Headers[header]
		switch u, err := url.Parse(at); {
		case at == "" || err != nil:
		case r.URL.String() == at:
			return o.poll(r, header)
		case operationKey(r.URL.Path) == operationKey(u.Path) && isMonitor(at) == isMonitor(r.URL.RawQuery):
			o.wrong = fmt.Errorf("asked %s, Azure named %s", r.URL, at)
		}
	}
	if !o.begun {
		return reply(r, http.StatusNotFound, nil, tree{"error": tree{"code": "ResourceNotFound"}})
	}
	o.last = o.request.Response
	for n := range o.later {
		i := &o.later[n]
		read := i.Method == http.MethodGet && i.Status == http.StatusOK && strings.EqualFold(i.path(), r.URL.Path)
		if object, ok := i.Response.(map[string]any); ok && read {
			o.last = object
			break
		}
	}
	if object, ok := o.last.(map[string]any); ok {
		o.last = map[string]any(tree(object).with("properties", "provisioningState", "Succeeded"))
	}
	return reply(r, http.StatusOK, nil, o.last)
}

// poll answers with the next recorded poll. After the last, and where none was recorded, the
// operation has succeeded.
func (o *recordedOperation) poll(r *http.Request, header string) (*http.Response, error) {
	all := o.polls(header)
	n := o.next[header]
	o.next[header]++
	if n < len(all) {
		return reply(r, all[n].Status, all[n].Headers, all[n].Response)
	}
	if header == "azure-asyncoperation" {
		return reply(r, http.StatusOK, nil, tree{"status": "Succeeded"})
	}
	return reply(r, http.StatusOK, nil, o.request.Response)
}

func reply(r *http.Request, code int, headers map[string]string, body any) (*http.Response, error) {
	h := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		h.Set(name, headers[name])
	}
	text, err := []byte{}, error(nil)
	if body != nil {
		text, err = json.Marshal(body)
	}
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: h,
		Body: io.NopCloser(bytes.NewReader(text)), Request: r}, err
}

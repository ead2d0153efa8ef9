package arm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/internal/fleet"
)

// tokenPrefix names the form of a token. A later form gets another number, and
// this one stays readable.
const tokenPrefix = "ortet-arm-1." // #nosec G101 -- of an operation, not of a log-in

// maxToken bounds a token that is read back; the SDK's holds three URLs.
const maxToken = 32 << 10

// defaultWait is used where an operation says nothing; minWait keeps a
// Retry-After of 0 from becoming a loop.
const (
	defaultWait = 10 * time.Second
	minWait     = 50 * time.Millisecond
)

// A token is what a fleet.Token carries. Exactly one of Operation and Watch is
// set: the SDK's own resume token, or that the target's provisioningState is to
// be watched, since somebody else began what we want.
type token struct {
	Verb      string           `json:"verb"`
	Target    fleet.ResourceID `json:"target"`
	Operation string           `json:"operation,omitempty"`
	Watch     bool             `json:"watch,omitempty"`
}

func (t token) encode() (fleet.Token, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	return fleet.Token(tokenPrefix + base64.RawURLEncoding.EncodeToString(data)), nil
}

func decodeToken(s fleet.Token) (token, error) {
	var t token
	rest, ok := strings.CutPrefix(string(s), tokenPrefix)
	switch {
	case !ok:
		return t, errors.New("not a token of this program, or of a later version of it")
	case len(rest) > maxToken:
		return t, errors.New("too long")
	}
	data, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return t, err
	}
	if t.Verb == "" || t.Target == "" || (t.Operation == "") != t.Watch {
		return t, errors.New("incomplete")
	}
	return t, nil
}

// An operation is an SDK poller of any response.
type operation interface {
	Poll(ctx context.Context) (*http.Response, error)
	Done() bool
}

// A poller is a running operation between two questions after it.
type poller struct {
	verb   string
	target fleet.ResourceID
	op     operation
}

// keptPollers bounds the pollers that are kept; a process follows a few
// operations at a time.
const keptPollers = 32

// take returns the poller that was kept for a token, for this caller alone. It is
// nil where there is none: the poller is rebuilt from the token, which costs as
// much as the request.
func (c *Cloud) take(tok fleet.Token) *poller {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pollers[tok]
	delete(c.pollers, tok)
	return p
}

// keep keeps a poller whose last question was answered. After an error none is
// kept: the token says how to begin again.
func (c *Cloud) keep(tok fleet.Token, p *poller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pollers) >= keptPollers {
		clear(c.pollers)
	}
	c.pollers[tok] = p
}

// resume rebuilds the SDK's poller from its token.
func resume[T any](c *Cloud, sdk string) (operation, error) {
	return runtime.NewPollerFromResumeToken[T](sdk, c.raw.Pipeline(), nil)
}

// resumeVerb rebuilds the poller of a verb's response.
func (c *Cloud) resumeVerb(t token) (operation, error) {
	if vm := t.Target.UniformPool() == ""; vm {
		switch t.Verb { // of a virtual machine; its protection is its scale set's
		case fleet.StopInstance{}.Verb():
			return resume[armcompute.VirtualMachinesClientPowerOffResponse](c, t.Operation)
		case fleet.StopInstance{Deallocate: true}.Verb():
			return resume[armcompute.VirtualMachinesClientDeallocateResponse](c, t.Operation)
		case fleet.StartInstance{}.Verb():
			return resume[armcompute.VirtualMachinesClientStartResponse](c, t.Operation)
		case fleet.AttachDisk{}.Verb(), fleet.DetachDisk{}.Verb():
			return resume[armcompute.VirtualMachinesClientAttachDetachDataDisksResponse](c, t.Operation)
		}
	}
	switch t.Verb {
	case fleet.StopInstance{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetVMsClientPowerOffResponse](c, t.Operation)
	case fleet.StopInstance{Deallocate: true}.Verb():
		return resume[armcompute.VirtualMachineScaleSetVMsClientDeallocateResponse](c, t.Operation)
	case fleet.StartInstance{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetVMsClientStartResponse](c, t.Operation)
	case fleet.ReimageInstance{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetVMsClientReimageResponse](c, t.Operation)
	case fleet.RestartInstance{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetVMsClientRestartResponse](c, t.Operation)
	case fleet.UpgradeInstances{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetsClientUpdateInstancesResponse](c, t.Operation)
	case fleet.DeleteInstances{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetsClientDeleteInstancesResponse](c, t.Operation)
	case fleet.DeallocateScaleSet{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetsClientDeallocateResponse](c, t.Operation)
	case fleet.StartScaleSet{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetsClientStartResponse](c, t.Operation)
	case fleet.DeleteScaleSet{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetsClientDeleteResponse](c, t.Operation)
	case fleet.ProtectInstance{}.Verb(), fleet.SetUserData{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetVMsClientUpdateResponse](c, t.Operation)
	case fleet.AttachDisk{}.Verb(), fleet.DetachDisk{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetVMsClientAttachDetachDataDisksResponse](c, t.Operation)
	case fleet.CreateSnapshot{}.Verb():
		return resume[armcompute.SnapshotsClientCreateOrUpdateResponse](c, t.Operation)
	case fleet.DeleteSnapshot{}.Verb():
		return resume[armcompute.SnapshotsClientDeleteResponse](c, t.Operation)
	case fleet.CreateDisk{}.Verb():
		return resume[armcompute.DisksClientCreateOrUpdateResponse](c, t.Operation)
	case fleet.DeleteDisk{}.Verb():
		return resume[armcompute.DisksClientDeleteResponse](c, t.Operation)
	case fleet.CreateGallery{}.Verb():
		return resume[armcompute.GalleriesClientCreateOrUpdateResponse](c, t.Operation)
	case fleet.CreateDefinition{}.Verb():
		return resume[armcompute.GalleryImagesClientCreateOrUpdateResponse](c, t.Operation)
	case fleet.CreateVersion{}.Verb(), fleet.PublishVersion{}.Verb():
		return resume[armcompute.GalleryImageVersionsClientCreateOrUpdateResponse](c, t.Operation)
	case fleet.TagDefinition{}.Verb():
		return resume[armcompute.GalleryImagesClientUpdateResponse](c, t.Operation)
	case fleet.TagVersion{}.Verb():
		return resume[armcompute.GalleryImageVersionsClientUpdateResponse](c, t.Operation)
	case fleet.CreateCanary{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetsClientCreateOrUpdateResponse](c, t.Operation)
	case fleet.DeleteVersion{}.Verb():
		return resume[armcompute.GalleryImageVersionsClientDeleteResponse](c, t.Operation)
	case fleet.PatchModel{}.Verb(), fleet.SetCapacity{}.Verb(), fleet.SetModelUserData{}.Verb(), fleet.SetSize{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetsClientUpdateResponse](c, t.Operation)
	case fleet.WriteExtension{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetExtensionsClientCreateOrUpdateResponse](c, t.Operation)
	case fleet.DeleteExtension{}.Verb():
		return resume[armcompute.VirtualMachineScaleSetExtensionsClientDeleteResponse](c, t.Operation)
	}
	return nil, fmt.Errorf("unknown verb %q", t.Verb)
}

// begun turns what an SDK client's Begin returned into a token.
func begun[T any](ctx context.Context, change fleet.Change, p *runtime.Poller[T], err error) (fleet.Token, error) {
	if err != nil {
		return "", failed(ctx, change.Verb(), change.Target(), err)
	}
	if p.Done() {
		// Done pollers answer with the response that they have.
		resp, err := p.Poll(ctx) //nolint:bodyclose // the SDK has read and closed it
		if err != nil {
			return "", failed(ctx, change.Verb(), change.Target(), err)
		}
		return "", ended(change.Verb(), change.Target(), resp)
	}
	sdk, err := p.ResumeToken()
	if err != nil {
		return "", failed(ctx, change.Verb(), change.Target(), err)
	}
	t, err := token{Verb: change.Verb(), Target: change.Target(), Operation: sdk}.encode()
	return t, failed(ctx, change.Verb(), change.Target(), err)
}

// watching is the token of a change that is under way already.
func watching(change fleet.Change) (fleet.Token, error) {
	return token{Verb: change.Verb(), Target: change.Target(), Watch: true}.encode()
}

// A status is what operations and resources say of themselves.
type status struct {
	Status          string   `json:"status"`
	PercentComplete *float64 `json:"percentComplete"`
	Properties      struct {
		ProvisioningState string `json:"provisioningState"`
	} `json:"properties"`
}

// readStatus reads a poll's answer; the body may be empty.
func readStatus(resp *http.Response) (state string, percent int32) {
	percent = -1
	body, err := runtime.Payload(resp)
	if err != nil || len(body) == 0 {
		return "", percent
	}
	var s status
	if json.Unmarshal(body, &s) != nil {
		// properties of an operation's status may be anything.
		var plain struct {
			Status          string   `json:"status"`
			PercentComplete *float64 `json:"percentComplete"`
		}
		if json.Unmarshal(body, &plain) != nil {
			return "", percent
		}
		s.Status, s.PercentComplete = plain.Status, plain.PercentComplete
	}
	if s.PercentComplete != nil && *s.PercentComplete >= 0 && *s.PercentComplete <= 100 {
		percent = int32(*s.PercentComplete)
	}
	if s.Status != "" {
		return s.Status, percent
	}
	return s.Properties.ProvisioningState, percent
}

func isFailed(state string) bool {
	return strings.EqualFold(state, "Failed") || strings.EqualFold(state, "Canceled") || strings.EqualFold(state, "Cancelled")
}

// ended is the error that an operation's last answer carries, if any.
func ended(verb string, on fleet.ResourceID, resp *http.Response) error {
	state, _ := readStatus(resp)
	if resp.StatusCode < 300 && !isFailed(state) {
		return nil
	}
	e := &fleet.Error{Op: verb, Resource: string(on)}
	code := resp.Header.Get("X-Ms-Error-Code")
	classifyAnswer(e, resp, resp.StatusCode, code)
	var r *refusal
	if errors.As(e.Err, &r) && r.code == "" && r.message == "" && state != "" {
		r.message = "the operation ended as " + state
		if !strings.EqualFold(state, "Failed") {
			e.Kind = fleet.KindConflict
		}
	}
	return e
}

// Poll asks once how far an operation is.
func (c *Cloud) Poll(ctx context.Context, tok fleet.Token) (fleet.Progress, error) {
	if kept := c.take(tok); kept != nil {
		return c.ask(ctx, tok, kept)
	}
	none := fleet.Progress{Percent: -1}
	t, err := decodeToken(tok)
	if err != nil {
		return none, &fleet.Error{Op: "resume an operation", Kind: fleet.KindInvalid, Err: fmt.Errorf("bad token: %w", err),
			Remedy: "observe the target instead"}
	}
	if t.Watch {
		return c.watch(ctx, t)
	}
	op, err := c.resumed(ctx, t)
	if err != nil {
		return none, err
	}
	return c.ask(ctx, tok, &poller{t.Verb, t.Target, op})
}

// resumed rebuilds an operation from its token.
func (c *Cloud) resumed(ctx context.Context, t token) (operation, error) {
	if err := c.sdkTokenAtHome(t.Operation); err != nil {
		return nil, failed(ctx, t.Verb, t.Target, err)
	}
	op, err := c.resumeVerb(t)
	if err != nil {
		return nil, &fleet.Error{Op: t.Verb, Resource: string(t.Target), Kind: fleet.KindInvalid,
			Err: fmt.Errorf("bad token: %w", err), Remedy: "observe the target instead"}
	}
	return op, nil
}

// ask asks once after an operation, and keeps its poller if it goes on.
func (c *Cloud) ask(ctx context.Context, tok fleet.Token, t *poller) (fleet.Progress, error) {
	none := fleet.Progress{Percent: -1}
	op := t.op
	resp, err := op.Poll(ctx) //nolint:bodyclose // the SDK has read and closed it
	if err != nil {
		return none, failed(ctx, t.verb, t.target, err)
	}
	if resp.StatusCode >= 400 && asksFailed(resp.StatusCode) {
		return none, failed(ctx, t.verb, t.target, runtime.NewResponseError(resp))
	}
	state, percent := readStatus(resp)
	progress := fleet.Progress{Done: op.Done(), Percent: percent, Status: state, Wait: waitOf(resp.Header)}
	if progress.Done {
		progress.Wait = 0
		return progress, ended(t.verb, t.target, resp)
	}
	c.keep(tok, t)
	return progress, nil
}

// asksFailed tells the answers at an operation's Location that concern the
// question from those that are the operation's own failed end.
func asksFailed(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone,
		http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

func waitOf(h http.Header) time.Duration {
	d, said := retryAfter(h)
	if !said {
		return defaultWait
	}
	return max(d, minWait)
}

// sdkTokenAtHome refuses a token with a URL elsewhere before anything is sent;
// homePolicy would refuse the request too.
func (c *Cloud) sdkTokenAtHome(sdk string) error {
	var tree any
	if err := json.Unmarshal([]byte(sdk), &tree); err != nil {
		return fmt.Errorf("bad token: %w", err)
	}
	home := homePolicy{c.endpoint}
	var check func(v any) error
	check = func(v any) error {
		switch v := v.(type) {
		case map[string]any:
			for _, x := range v {
				if err := check(x); err != nil {
					return err
				}
			}
		case []any:
			for _, x := range v {
				if err := check(x); err != nil {
					return err
				}
			}
		case string:
			if !strings.Contains(v, "://") {
				return nil
			}
			if u, err := url.Parse(v); err != nil || !home.atHome(u) {
				return foreignError{"another host", c.endpoint.Host}
			}
		}
		return nil
	}
	return check(tree)
}

// watch asks for the state of the resource that somebody else is creating.
func (c *Cloud) watch(ctx context.Context, t token) (fleet.Progress, error) {
	p := fleet.Progress{Percent: -1, Wait: defaultWait}
	var err error
	message := ""
	switch t.Verb {
	case fleet.CreateSnapshot{}.Verb():
		var s fleet.Snapshot
		s, err = c.Snapshot(ctx, t.Target)
		p.Status = s.ProvisioningState
	case fleet.CreateDisk{}.Verb():
		var d fleet.Disk
		d, err = c.Disk(ctx, t.Target)
		p.Status = d.ProvisioningState
	case fleet.CreateDefinition{}.Verb():
		var d fleet.Definition
		d, err = c.Definition(ctx, t.Target)
		p.Status = d.ProvisioningState
	case fleet.CreateVersion{}.Verb():
		var v fleet.ImageVersion
		v, err = c.Version(ctx, t.Target)
		p.Status, p.Percent, message = v.ProvisioningState, v.Progress, v.FailureMessage
	default:
		return p, &fleet.Error{Op: t.Verb, Resource: string(t.Target), Kind: fleet.KindInvalid,
			Err: errors.New("bad token: this verb cannot be watched"), Remedy: "observe the target instead"}
	}
	if err != nil {
		return fleet.Progress{Percent: -1}, err
	}
	switch {
	case isFailed(p.Status):
		p.Done, p.Wait = true, 0
		r := &refusal{message: "ended as " + p.Status}
		if message != "" {
			r.message += ": " + message
		}
		return p, &fleet.Error{Op: t.Verb, Resource: string(t.Target), Kind: kindOf(0, "", message), Err: r}
	case strings.EqualFold(p.Status, stateSucceeded) || p.Status == "":
		p.Done, p.Wait = true, 0
	}
	return p, nil
}

// The states of a resource that decide what a repeated creation does.
const (
	stateSucceeded = "Succeeded"
	stateDeleting  = "Deleting"
)

// creating makes a creation repeatable. state is what a fresh GET says, with
// the error of that GET; clash says why what exists is something else.
func creating(change fleet.Change, state string, clash, err error, begin func() (fleet.Token, error)) (fleet.Token, error) {
	switch {
	case fleet.Is(err, fleet.KindNotFound):
		return begin()
	case err != nil:
		return "", err
	case clash != nil:
		return "", &fleet.Error{Op: change.Verb(), Resource: string(change.Target()), Kind: fleet.KindConflict, Err: clash}
	case strings.EqualFold(state, stateSucceeded) || state == "":
		return "", nil
	case strings.EqualFold(state, stateDeleting):
		return "", &fleet.Error{Op: change.Verb(), Resource: string(change.Target()), Kind: fleet.KindConflict,
			Err: errors.New("one of that name is just being deleted")}
	case isFailed(state):
		return begin()
	}
	return watching(change)
}

// sameSource says why what exists was not made from what the change asks for.
// Azure does not always say what something was made from.
func sameSource(have, want fleet.ResourceID) error {
	if have == "" || have.Equal(want) {
		return nil
	}
	return fmt.Errorf("one of that name exists, made from %s instead of %s", have, want)
}

// gone makes a deletion repeatable: what is not there need not be deleted. That is
// so where the code says that the target, or what it lies in, is missing. Azure also
// says 404 where something else is: GalleryImageNotFound for an extension of a model
// whose image was deleted.
func gone(tok fleet.Token, err error) (fleet.Token, error) {
	var e *fleet.Error
	if !fleet.Is(err, fleet.KindNotFound) || !errors.As(err, &e) {
		return tok, err
	}
	switch strings.ToLower(e.Code) {
	case "", "notfound", "resourcenotfound", "parentresourcenotfound", "resourcegroupnotfound":
		return "", nil
	}
	other := *e
	other.Kind = fleet.KindInvalid
	return tok, &other
}

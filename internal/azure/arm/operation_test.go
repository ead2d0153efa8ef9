package arm_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

const operation = base + "/subscriptions/5ca1ab1e-0000-4000-8000-000000000002/providers/Microsoft.Compute/locations/westeurope/operations/o?p=1&api-version=2026-04-01"

func accepted() answer {
	return answer{status: 202, header: map[string]string{"Azure-AsyncOperation": operation, "Location": operation + "&monitor=true", "Retry-After": "10"}}
}

func status(body string) answer {
	return answer{status: 200, header: map[string]string{"Retry-After": "7"}, body: body}
}

func begin(t *testing.T, c azure.Cloud) fleet.Token {
	t.Helper()
	tok, err := c.Begin(t.Context(), fleet.StopInstance{Instance: instance})
	if err != nil || tok == "" {
		t.Fatalf("token %q, error %v", tok, err)
	}
	return tok
}

func TestPoll(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer answer
		want   fleet.Progress
		kind   fleet.Kind
		fails  bool
		says   string
	}{
		{name: "running", answer: status(`{"status":"InProgress","percentComplete":42.5}`),
			want: fleet.Progress{Percent: 42, Wait: 7 * time.Second, Status: "InProgress"}},
		{name: "running, no Retry-After", answer: answer{status: 200, body: `{"status":"InProgress"}`},
			want: fleet.Progress{Percent: -1, Wait: 10 * time.Second, Status: "InProgress"}},
		{name: "done", answer: status(`{"status":"Succeeded"}`), want: fleet.Progress{Done: true, Percent: -1, Status: "Succeeded"}},
		{name: "done, odd properties", answer: status(`{"status":"Succeeded","properties":[1]}`), want: fleet.Progress{Done: true, Percent: -1, Status: "Succeeded"}},
		{name: "failed", answer: status(`{"status":"Failed","error":{"code":"InternalExecutionError","message":"An internal error."}}`),
			want: fleet.Progress{Done: true, Percent: -1, Status: "Failed"}, kind: fleet.KindTransient, fails: true, says: "An internal error."},
		{name: "failed for no reason", answer: status(`{"status":"Failed"}`),
			want: fleet.Progress{Done: true, Percent: -1, Status: "Failed"}, fails: true, says: "the operation ended as Failed"},
		{name: "canceled", answer: status(`{"status":"Canceled","error":{"code":"OperationPreempted","message":"preempted by a newer one"}}`),
			want: fleet.Progress{Done: true, Percent: -1, Status: "Canceled"}, kind: fleet.KindConflict, fails: true},
		{name: "allocation", answer: status(`{"status":"Failed","error":{"code":"AllocationFailed","message":"no room"}}`),
			want: fleet.Progress{Done: true, Percent: -1, Status: "Failed"}, kind: fleet.KindBlocked, fails: true},
		{name: "forgotten", answer: refusal(404, "NotFound", "The entity was not found."),
			want: fleet.Progress{Percent: -1}, kind: fleet.KindNotFound, fails: true},
		{name: "throttled", answer: answer{status: 429, header: map[string]string{"Retry-After": "5"}},
			want: fleet.Progress{Percent: -1}, kind: fleet.KindThrottled, fails: true},
		{name: "internal", answer: answer{status: 500}, want: fleet.Progress{Percent: -1}, kind: fleet.KindTransient, fails: true},
		{name: "garbled", answer: status(`<html>`), want: fleet.Progress{Percent: -1}, kind: fleet.KindTransient, fails: true},
		{name: "silent", answer: status(`{}`), want: fleet.Progress{Percent: -1}, kind: fleet.KindTransient, fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			first, _ := newCloud(t, accepted())
			tok := begin(t, first)
			second, s := newCloud(t, tc.answer) // another process
			got, err := second.Poll(t.Context(), tok)
			if got != tc.want {
				t.Errorf("progress %+v, want %+v", got, tc.want)
			}
			if (err != nil) != tc.fails || fleet.KindOf(err) != tc.kind {
				t.Errorf("kind %q, error %v; want kind %q", fleet.KindOf(err), err, tc.kind)
			}
			if err != nil && (!strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "stop instance") || !strings.Contains(err.Error(), string(instance))) {
				t.Errorf("the text is wrong: %v", err)
			}
			if len(s.sent) != 1 || s.sent[0].method != "GET" {
				t.Errorf("a poll is one GET, not %v", s.sent)
			}
		})
	}
}

// Answers at Location speak by their status.
func TestPollLocation(t *testing.T) {
	only := answer{status: 202, header: map[string]string{"Location": operation}}
	for name, tc := range map[string]struct {
		answer answer
		done   bool
		kind   fleet.Kind
		fails  bool
	}{
		"running":   {answer: answer{status: 202, header: map[string]string{"Location": operation, "Retry-After": "3"}}},
		"done":      {answer: answer{status: 200}, done: true},
		"gone":      {answer: answer{status: 204}, done: true},
		"failed":    {answer: refusal(409, "OperationPreempted", "no"), done: true, kind: fleet.KindConflict, fails: true},
		"forgotten": {answer: refusal(404, "NotFound", "no"), kind: fleet.KindNotFound, fails: true},
		"denied":    {answer: refusal(403, "AuthorizationFailed", "no"), kind: fleet.KindDenied, fails: true},
		"throttled": {answer: refusal(429, "TooManyRequests", "no"), kind: fleet.KindThrottled, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newCloud(t, only, tc.answer)
			p, err := c.Poll(t.Context(), begin(t, c))
			if p.Done != tc.done || (err != nil) != tc.fails || fleet.KindOf(err) != tc.kind {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

func TestBegin(t *testing.T) {
	t.Run("done at once", func(t *testing.T) {
		c, _ := newCloud(t, answer{status: 200})
		if tok, err := c.Begin(t.Context(), fleet.StopInstance{Instance: instance}); tok != "" || err != nil {
			t.Errorf("%q, %v", tok, err)
		}
	})
	t.Run("failed at once", func(t *testing.T) {
		c, _ := newCloud(t, refusal(404, "ResourceNotFound", ""), answer{status: 201, body: `{"properties":{"provisioningState":"Failed"}}`})
		_, err := c.Begin(t.Context(), fleet.CreateSnapshot{ID: snapshot, Location: "westeurope", Source: disk})
		if err == nil {
			t.Error("a resource that Failed is taken for a success")
		}
	})
	t.Run("deletion of what is not there", func(t *testing.T) {
		for _, ch := range []fleet.Change{fleet.DeleteSnapshot{ID: snapshot}, fleet.DeleteDisk{ID: disk}, fleet.DeleteVersion{ID: version}, fleet.DeleteExtension{Pool: pool, Name: "x"}} {
			for _, a := range []answer{{status: 204}, refusal(404, "ResourceNotFound", "no"), refusal(404, "ParentResourceNotFound", "no"), refusal(404, "NotFound", "no")} {
				c, _ := newCloud(t, a)
				if tok, err := c.Begin(t.Context(), ch); tok != "" || err != nil {
					t.Errorf("%s: %q, %v", ch.Verb(), tok, err)
				}
			}
		}
	})
	t.Run("somebody creates it already", func(t *testing.T) {
		body := func(state string) answer {
			return answer{status: 200, body: `{"id":"` + string(version) + `","properties":{"provisioningState":"` + state + `",
				"replicationStatus":{"summary":[{"region":"West Europe","progress":30},{"region":"b","progress":60}]},
				"storageProfile":{"osDiskImage":{"source":{"id":"` + strings.ToUpper(string(snapshot)) + `"}}}}}`}
		}
		c, s := newCloud(t, body("Creating"), body("Creating"), body("Succeeded"))
		tok, err := c.Begin(t.Context(), fleet.CreateVersion{ID: version, Location: "westeurope", Source: snapshot})
		if err != nil || tok == "" {
			t.Fatal(tok, err)
		}
		if p, err := c.Poll(t.Context(), tok); err != nil || p.Done || p.Percent != 30 || p.Status != "Creating" || p.Wait == 0 {
			t.Errorf("%+v, %v", p, err)
		}
		if p, err := c.Poll(t.Context(), tok); err != nil || !p.Done {
			t.Errorf("%+v, %v", p, err)
		}
		for _, x := range s.sent {
			if x.method != "GET" {
				t.Errorf("sent a %s", x.method)
			}
		}
	})
	t.Run("something else of that name", func(t *testing.T) {
		c, _ := newCloud(t, answer{status: 200, body: `{"properties":{"provisioningState":"Succeeded","creationData":{"sourceResourceId":"/other"}}}`})
		_, err := c.Begin(t.Context(), fleet.CreateSnapshot{ID: snapshot, Location: "westeurope", Source: disk})
		if !fleet.Is(err, fleet.KindConflict) || !strings.Contains(err.Error(), "/other") {
			t.Errorf("%v", err)
		}
	})
	t.Run("unknown change", func(t *testing.T) {
		c, _ := newCloud(t)
		if _, err := c.Begin(t.Context(), nil); !fleet.Is(err, fleet.KindInvalid) {
			t.Errorf("%v", err)
		}
	})
}

// Every verb's token must be resumable, or a capture killed at that step is lost.
func TestEveryVerbResumes(t *testing.T) {
	for _, ch := range append(changes(), machineChanges()...) {
		t.Run(ch.Verb(), func(t *testing.T) {
			answers := []answer{accepted(), status(`{"status":"InProgress"}`)}
			switch ch.(type) {
			case fleet.ProtectInstance, fleet.AttachDisk, fleet.TagDefinition, fleet.TagVersion, fleet.SetCapacity, fleet.SetSize:
				answers = append([]answer{{status: 200, body: `{}`}}, answers...)
			case fleet.DetachDisk:
				answers = append([]answer{{status: 200, body: `{"properties":{"storageProfile":{"dataDisks":[{"lun":1,"managedDisk":{"id":"` + string(disk) + `"}}]}}}`}}, answers...)
			case fleet.PublishVersion:
				answers = append([]answer{{status: 200, body: `{"properties":{"publishingProfile":{"excludeFromLatest":true}}}`}}, answers...)
			case fleet.CreateCanary:
				answers = append([]answer{refusal(404, "ResourceNotFound", ""), {status: 200, body: `{"properties":{}}`}}, answers...)
			case fleet.CreateSnapshot, fleet.CreateDisk, fleet.CreateGallery, fleet.CreateDefinition, fleet.CreateVersion:
				answers = append([]answer{refusal(404, "ResourceNotFound", "")}, answers...)
			}
			if _, protects := ch.(fleet.ProtectInstance); protects && ch.Target() == virtual {
				vm := answer{status: 200, body: `{"name":"p_1a2b3c4d","properties":{"virtualMachineScaleSet":{"id":"` + string(pool) + `"}}}`}
				answers = append([]answer{vm}, answers...)
			}
			switch n := len(answers) - 2; ch.(type) { // the answer to the change
			case fleet.PatchModel, fleet.SetCapacity, fleet.TagDefinition, fleet.TagVersion, fleet.PublishVersion, fleet.CreateCanary, fleet.WriteExtension, fleet.SetModelUserData, fleet.SetUserData, fleet.SetSize:
				answers[n].status, answers[n].body = 200, `{"properties":{"provisioningState":"Updating"}}`
			case fleet.CreateSnapshot, fleet.CreateDisk, fleet.CreateGallery, fleet.CreateDefinition, fleet.CreateVersion:
				answers[n].status, answers[n].body = 202, `{"properties":{"provisioningState":"Creating"}}`
			}
			c, _ := newCloud(t, answers...)
			tok, err := c.Begin(t.Context(), ch)
			if err != nil || tok == "" {
				t.Fatalf("%q, %v", tok, err)
			}
			for _, r := range string(tok) {
				if r <= ' ' || r > '~' {
					t.Fatalf("the token is not printable: %q", tok)
				}
			}
			if strings.Contains(string(tok), "the-bearer") {
				t.Error("the token holds credentials")
			}
			if p, err := c.Poll(t.Context(), tok); err != nil || p.Done {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
	if n := len(azure.Changes()) + len(azure.PoolChanges()) + len(azure.CanaryChanges()); n != len(changes()) {
		t.Errorf("there are %d changes: add the new one to changes", n)
	}
}

// A token comes from a store that others can write to.
func TestForgedTokens(t *testing.T) {
	forge := func(inner map[string]any) fleet.Token {
		data, err := json.Marshal(inner)
		if err != nil {
			t.Fatal(err)
		}
		return fleet.Token("ortet-arm-1." + base64.RawURLEncoding.EncodeToString(data))
	}
	sdk := func(url string) string {
		return `{"type":"VirtualMachineScaleSetVMsClientPowerOffResponse","token":{"asyncURL":"` + url + `","locURL":"","origURL":"","method":"POST","finalState":"","state":"InProgress"}}`
	}
	for name, tok := range map[string]fleet.Token{
		"empty":          "",
		"text":           "hello",
		"later form":     "ortet-arm-9.abc",
		"no base64":      "ortet-arm-1.!!",
		"no JSON":        "ortet-arm-1.aGVsbG8",
		"nothing in it":  forge(map[string]any{}),
		"unknown verb":   forge(map[string]any{"verb": "explode", "target": instance, "operation": sdk(operation)}),
		"other verb":     forge(map[string]any{"verb": "start instance", "target": instance, "operation": sdk(operation)}),
		"elsewhere":      forge(map[string]any{"verb": "stop instance", "target": instance, "operation": sdk("https://evil.invalid/x")}),
		"elsewhere, hid": forge(map[string]any{"verb": "stop instance", "target": instance, "operation": sdk("https://arm.invalid@evil.invalid/x")}),
		"plain http":     forge(map[string]any{"verb": "stop instance", "target": instance, "operation": sdk("http://arm.invalid/x")}),
		"odd watch":      forge(map[string]any{"verb": "stop instance", "target": instance, "watch": true}),
		"huge":           fleet.Token("ortet-arm-1." + strings.Repeat("A", 1<<20)),
	} {
		t.Run(name, func(t *testing.T) {
			c, s := newCloud(t)
			if _, err := c.Poll(t.Context(), tok); !fleet.Is(err, fleet.KindInvalid) {
				t.Errorf("%v", err)
			}
			if len(s.sent) > 0 {
				t.Errorf("sent %v", s.sent)
			}
		})
	}
}

func FuzzPollToken(f *testing.F) {
	f.Add("ortet-arm-1.e30")
	f.Add("ortet-arm-1.eyJ2ZXJiIjoic3RvcCBpbnN0YW5jZSJ9")
	f.Fuzz(func(t *testing.T, s string) {
		c, script := newCloud(t)
		if _, err := c.Poll(t.Context(), fleet.Token(s)); err == nil {
			t.Errorf("%q is taken for a token", s)
		}
		_ = script
	})
}

func FuzzOperationStatus(f *testing.F) {
	f.Add(200, `{"status":"InProgress"}`)
	f.Add(200, `{"status":"Failed","error":{"code":"X","details":[{"message":"y"}]}}`)
	f.Add(409, `{"code":"X","message":"y"}`)
	f.Add(200, `{"status":1,"error":[]}`)
	f.Fuzz(func(t *testing.T, code int, body string) {
		if code < 200 || code > 599 {
			t.Skip("no answer has such a status")
		}
		c, _ := newCloud(t, accepted(), answer{status: code, body: body})
		p, err := c.Poll(t.Context(), begin(t, c))
		if p.Done && p.Wait != 0 || !p.Done && err == nil && p.Wait <= 0 {
			t.Errorf("%d %q: %+v, %v", code, body, p, err)
		}
		if err == nil && code >= 400 {
			t.Errorf("%d %q is taken for a success", code, body)
		}
	})
}

// A 404 may be of something else than what is to be deleted.
func TestDeletionOfWhatNeedsWhatIsMissing(t *testing.T) {
	c, _ := newCloud(t, refusal(404, "GalleryImageNotFound", "The gallery image /x/versions/1.0.0 is not available."))
	_, err := c.Begin(t.Context(), fleet.DeleteExtension{Pool: pool, Name: "vmssCSE"})
	if !fleet.Is(err, fleet.KindInvalid) || !strings.Contains(err.Error(), "GalleryImageNotFound") {
		t.Errorf("%v", err)
	}
}

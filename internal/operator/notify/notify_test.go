package notify_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/ortet/ortet/api/v1alpha1"
	"github.com/ortet/ortet/internal/operator/notify"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// seen is a status of a pool whose model names an image, with versions as NAME=STATE and a last run as
// KIND=EXIT=MESSAGE.
func seen(image, last string, versions ...string) api.ScaleSetPoolStatus {
	s := api.ScaleSetPoolStatus{ObservedGeneration: 1, Image: image}
	for _, v := range versions {
		name, state, _ := strings.Cut(v, "=")
		s.Versions = append(s.Versions, api.VersionStatus{Name: name, State: state, Reason: map[bool]string{true: "join: pool1_5 runs and has no Node"}[state == api.VersionQuarantined]})
	}
	if parts := strings.Split(last, "="); len(parts) == 3 {
		s.LastRun = &api.LastRunStatus{Kind: parts[0], Exit: int32(parts[1][0] - '0'), Message: parts[2], Ended: metav1.NewTime(noon)}
	}
	return s
}

func found(before, after api.ScaleSetPoolStatus) string {
	p := &api.ScaleSetPool{ObjectMeta: metav1.ObjectMeta{Name: "pool1"}, Status: after}
	p.Spec.ScaleSet = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/k8s-pool1"
	var all []string
	for _, e := range notify.Find(p, before, noon) {
		all = append(all, strings.TrimSpace(e.Event+" "+e.Version))
	}
	return strings.Join(all, ", ")
}

func TestNotificationsOfStatuses(t *testing.T) {
	eleven := func(from int, bad string) (names []string) {
		for i := range 10 {
			name := fmt.Sprintf("%02d", from-i)
			names = append(names, name+"="+map[bool]string{true: "Quarantined", false: "Old"}[name == bad])
		}
		return names
	}
	stopped := "rollout=4=node pool1_3 failed"
	for name, c := range map[string]struct {
		before, after api.ScaleSetPoolStatus
		want          string
	}{
		"the first status":                     {api.ScaleSetPoolStatus{}, seen("1", stopped, "2=Quarantined", "1=Proven"), ""},
		"nothing":                              {seen("1", stopped, "2=Quarantined", "1=Proven"), seen("1", stopped, "2=Quarantined", "1=Proven"), ""},
		"a canary failed":                      {seen("1", "", "1=Proven"), seen("1", "", "2=Quarantined", "1=Proven"), "VersionQuarantined 2"},
		"its capture failed too":               {seen("1", "", "1=Proven"), seen("1", "capture=1=it is quarantined", "2=Quarantined", "1=Proven"), "VersionQuarantined 2, CaptureFailed"},
		"quarantined while live":               {seen("2", "", "2=Watched", "1=Proven"), seen("2", "", "2=Quarantined", "1=Proven"), "VersionQuarantined 2"},
		"taken back then":                      {seen("2", "", "2=Quarantined", "1=Proven"), seen("1", "", "2=Quarantined", "1=Proven"), "VersionTakenBack 2"},
		"both between two looks":               {seen("2", "", "2=Watched", "1=Proven"), seen("1", "watch=1=bad", "2=Quarantined", "1=Proven"), "VersionQuarantined 2, VersionTakenBack 2"},
		"a newer version went live":            {seen("1", "", "1=Proven"), seen("2", "capture=0=", "2=Watched", "1=Proven"), ""},
		"a stopped rollout":                    {seen("1", "capture=0=", "1=Proven"), seen("1", stopped, "1=Proven"), "RolloutStopped 1"},
		"a rollout that stopped again":         {seen("1", stopped, "1=Proven"), seen("1", stopped, "1=Proven"), ""},
		"a rollout that stopped elsewhere":     {seen("1", stopped, "1=Proven"), seen("1", "rollout=4=node pool1_4 failed", "1=Proven"), "RolloutStopped 1"},
		"an interrupted capture":               {seen("1", ""), seen("1", "capture=5=interrupted"), ""},
		"a refused capture":                    {seen("1", ""), seen("1", "capture=3=no room for the disk"), "CaptureFailed"},
		"an eleventh version, that comes back": {seen("12", "", eleven(12, "02")...), seen("11", "", eleven(11, "02")...), ""},
		"a new version of a full list":         {seen("11", "", eleven(11, "12")...), seen("11", "", eleven(12, "12")...), "VersionQuarantined 12"},
	} {
		if got := found(c.before, c.after); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The body has names and reasons, and nothing that a secret could be in.
func TestNotificationBody(t *testing.T) {
	p := &api.ScaleSetPool{ObjectMeta: metav1.ObjectMeta{Name: "pool1"}, Status: seen("1", "capture=1=failed")}
	p.Spec.ScaleSet = "/subscriptions/11111111-0000-0000-0000-000000000000/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/k8s-pool1"
	p.Status.Conditions = []metav1.Condition{{Type: api.ConditionStalled, Status: "True", Reason: "RunFailed"}}
	p.Status.LastRun.Message = "cannot pull: password=hunter2hunter2 is wrong" + strings.Repeat(" x", 4000)
	events := notify.Find(p, seen("1", ""), noon)
	if len(events) != 1 {
		t.Fatalf("%+v", events)
	}
	body, err := json.Marshal(events[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", "11111111", "resourceGroups"} {
		if strings.Contains(string(body), secret) {
			t.Errorf("%q is in %s", secret, body)
		}
	}
	if !strings.HasPrefix(string(body), `{"schema":1,"event":"CaptureFailed","pool":"pool1","scaleSet":"k8s-pool1","reason":"RunFailed","message":"cannot pull: `) || len(body) > 2<<10 {
		t.Errorf("%d bytes: %s", len(body), body)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answers counts tries in virtual time, and answers each with the next code; 0 is no answer, and the last
// code is that of all that follow.
func answers(t *testing.T, codes []int, during func(s *notify.Sender, cancel context.CancelFunc)) (tries []time.Duration, log string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		var lines strings.Builder
		s := notify.New(notify.Config{URL: "https://hooks.invalid/token", Log: slog.New(slog.NewTextHandler(&lines, nil)), Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			code := codes[min(len(tries), len(codes)-1)]
			tries = append(tries, time.Since(begin))
			if code == 0 {
				<-r.Context().Done()
				return nil, errors.New("no answer")
			}
			return &http.Response{StatusCode: code, Header: http.Header{"Location": {"https://other.invalid/"}}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
		})})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.Run(ctx); close(ended) }()
		during(s, cancel)
		cancel()
		<-ended
		log = lines.String()
	})
	return tries, log
}

func TestNotificationTries(t *testing.T) {
	seconds := func(all ...float64) (out []time.Duration) {
		for _, s := range all {
			out = append(out, time.Duration(s*float64(time.Second)))
		}
		return out
	}
	for name, c := range map[string]struct {
		codes []int
		want  []time.Duration
		log   string
	}{
		"taken at once":         {[]int{204}, seconds(0), ""},
		"taken later":           {[]int{503, 429, 200}, seconds(0, 2, 10), ""},
		"never":                 {[]int{500}, seconds(0, 2, 10, 42, 170, 682), "tries=6 error=\"answered 500\""},
		"refused":               {[]int{404}, seconds(0), "tries=1 error=\"answered 404\""},
		"led elsewhere":         {[]int{307}, seconds(0), "redirects are not followed"},
		"silent, then it talks": {[]int{0, 200}, seconds(0, 12), ""},
	} {
		got, log := answers(t, c.codes, func(s *notify.Sender, _ context.CancelFunc) {
			s.Send([]notify.Event{{Event: notify.CaptureFailed, Pool: "pool1"}})
			time.Sleep(time.Hour)
		})
		if !slices.Equal(got, c.want) || !strings.Contains(log, c.log) || (c.log == "") != (log == "") || strings.Contains(log, "token") {
			t.Errorf("%s: tried after %v, want %v; %s", name, got, c.want, log)
		}
	}
}

// Whoever sends never waits for the receiver, and the end of the operator only for seconds.
func TestSendNeverBlocks(t *testing.T) {
	tries, log := answers(t, []int{0}, func(s *notify.Sender, cancel context.CancelFunc) {
		begin := time.Now()
		for range 200 {
			s.Send([]notify.Event{{Event: notify.CaptureFailed, Pool: "pool1"}})
		}
		var none *notify.Sender
		none.Send([]notify.Event{{}})
		if took := time.Since(begin); took > 0 {
			t.Errorf("200 events were queued in %s", took)
		}
		time.Sleep(time.Second)
		cancel()
		time.Sleep(11 * time.Second)
	})
	if dropped := strings.Count(log, "queue full"); dropped < 99 || dropped > 101 || len(tries) < 2 {
		t.Errorf("%d dropped, %d tries", dropped, len(tries))
	}
}

func TestNotificationSignature(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	write := func(key string) {
		if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan [2]string, 4) // one that is interrupted is sent again
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- [2]string{r.Header.Get(notify.SignatureHeader), string(body)}
	}))
	defer server.Close()
	write("0123456789abcdef")
	c := notify.Config{URL: server.URL, SecretFile: file, Log: slog.New(slog.DiscardHandler)}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	s := notify.New(c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	for _, key := range []string{"0123456789abcdef", "fedcba9876543210"} { // the second is a Secret that was changed
		write(key)
		s.Send([]notify.Event{{Schema: 1, Event: notify.VersionTakenBack, Version: key}})
		sent := <-got
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(sent[1]))
		if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); sent[0] != want || !strings.Contains(sent[1], key) {
			t.Errorf("%s: signature %s, want %s", sent[1], sent[0], want)
		}
	}
	cancel()
	<-ended
}

func TestNotificationURL(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{
		"https://hooks.example/x": "", "http://127.0.0.1:8080/": "", "http://localhost/": "", "http://[::1]:1/": "",
		"http://hooks.example/token":      "http is for loopback addresses alone",
		"http://169.254.169.254/metadata": "http is for loopback addresses alone",
		"ftp://x/":                        `scheme "ftp": want https`,
		"https://user:token@x/":           "the URL has a user name",
		"hooks.example":                   "want a URL such as",
		"https://%zz/token":               "want a URL such as",
		"":                                "want a URL such as",
	} {
		err := notify.Config{URL: at}.Check()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "token")) {
			t.Errorf("%s: %v, want %s", at, err, want)
		}
	}
	if err := (notify.Config{URL: "https://x/", SecretFile: short}).Check(); err == nil || !strings.Contains(err.Error(), "has 3 bytes; want 16 to") {
		t.Error(err)
	}
	if err := (notify.Config{URL: "https://x/", SecretFile: short + "er"}).Check(); err == nil {
		t.Error("a missing file is accepted")
	}
}

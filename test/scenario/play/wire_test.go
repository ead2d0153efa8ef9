package play

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ortet/ortet/internal/azsim"
	"github.com/ortet/ortet/test/scenario"
)

// meets has the deletion of the model's extension meet one thing; done reports whether
// it is gone.
func meets(t *testing.T, what scenario.What, args ...string) (answer *http.Response, body string, done bool) {
	t.Helper()
	in(t, pool3, func(w *world) {
		w.azure.Instant(true)
		s := w.story
		s.Events = []scenario.Event{{Side: scenario.Azure, Request: "DELETE virtualMachineScaleSets/pool1/extensions/vmssCSE", Count: 1, What: what, Args: args}}
		w.chooser = scenario.NewChooser(s)
		answer, body = sends(t, w, http.MethodDelete, string(w.pool.Child("extensions", "vmssCSE")), apiYear)
		synctest.Wait()
		done = !w.bootstraps()
	})
	return answer, body, done
}

func TestProxiesAnswer(t *testing.T) {
	for _, c := range []struct {
		what         scenario.What
		status, body string
		want         string
	}{
		{scenario.ProxyBefore, "404", "html", "<h1>Not Found</h1>"},
		{scenario.ProxyBefore, "502", "empty", ""},
		{scenario.ProxyAfter, "200", "cut", `"/subscriptions/5ca1ab1e-0000`},
	} {
		answer, body, done := meets(t, c.what, c.status, c.body)
		if done != (c.what == scenario.ProxyAfter) || !strings.HasPrefix(answer.Status, c.status) || !strings.Contains(body, c.want) || c.want == "" && body != "" || strings.Contains(body, `"code"`) {
			t.Errorf("%s %s %s: %s %q, done: %t", c.what, c.status, c.body, answer.Status, body, done)
		}
	}
}

func TestRetryAfterIsADate(t *testing.T) {
	answer, _, _ := meets(t, scenario.ThrottleDate, "90")
	at, err := http.ParseTime(answer.Header.Get("Retry-After"))
	now, dated := http.ParseTime(answer.Header.Get("Date"))
	if err != nil || dated != nil || at.Sub(now) != 90*time.Second || answer.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%s, Retry-After %q, Date %q: want 90 s later", answer.Status, answer.Header.Get("Retry-After"), answer.Header.Get("Date"))
	}
}

func TestRulesOfWaiting(t *testing.T) {
	get, err := http.NewRequest(http.MethodGet, azsim.InProcess+"/snapshots/s", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	throttled := func(header http.Header) func(*world) {
		return func(w *world) {
			w.throttled(w.processes[0], scenario.Azure, get, &http.Response{StatusCode: http.StatusTooManyRequests, Header: header})
		}
	}
	after := func(d time.Duration) func(*world, *process) {
		return func(w *world, p *process) {
			time.Sleep(d)
			w.judgeWaits(p, scenario.Azure, get)
		}
	}
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // at which bubbles begin
	dated := http.Header{"Retry-After": {now.Add(30 * time.Second).Format(http.TimeFormat)}, "Date": {now.Format(http.TimeFormat)}}
	judged(t, []ruling{
		{"Retry-After in seconds", pool3, throttled(http.Header{"Retry-After": {"30"}}), nil, after(30 * time.Second), after(29 * time.Second), "before the time that Azure asked for"},
		{"Retry-After as a date", pool3, throttled(dated), nil, after(30 * time.Second), after(29 * time.Second), "before the time that Azure asked for"},
	})
}

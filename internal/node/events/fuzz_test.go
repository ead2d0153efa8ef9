package events

import (
	"strings"
	"testing"
	"testing/quick"
	"time"
	"unicode/utf8"
)

// What the metadata service answers may be anything: what is read of it is within
// bounds, and can be logged and decided on.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"DocumentIncarnation":2,"Events":[{"EventId":"E1","EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["pool1_3"],"EventStatus":"Scheduled","NotBefore":"Mon, 19 Sep 2016 18:29:47 GMT","Description":"","EventSource":"Platform","DurationInSeconds":-1}]}`))
	f.Add([]byte(`{"DocumentIncarnation":"3","Events":[{"EventId":"A","EventType":"Freeze","Resources":["POOL1_3","b"],"EventStatus":"Started","NotBefore":"","DurationInSeconds":"9"},{"EventId":"A","EventType":"Reboot","Resources":["pool1_3"],"EventStatus":"Scheduled"}]}`))
	f.Add([]byte(`{"DocumentIncarnation":1,"Events":[{},{"EventId":"x y"},{"EventId":"a","EventType":"\u001b[2J","EventStatus":"Scheduled"},7]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := ParseDocument(text)
		if err != nil {
			return
		}
		if len(d.Events) > maxEvents || len(d.Problems) > 8 {
			t.Errorf("%d events, %d problems", len(d.Events), len(d.Problems))
		}
		for _, e := range d.Events {
			if e.ID == "" || len(e.ID) > maxID || len(e.Type) > maxName || e.Duration < -1 || len(e.Description) > maxDescription || len(e.Source) > maxName {
				t.Errorf("%+v", e)
			}
			for _, s := range []string{e.ID, string(e.Type), e.Description, e.Source} {
				if !utf8.ValidString(s) || strings.ContainsAny(s, "\n\r\x1b\x00") {
					t.Errorf("%q cannot be logged", s)
				}
			}
		}
		now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		o := Observed{Name: "pool1_3", BootID: "boot1", Document: d}
		s, next, notices := Decide(State{}, o, now)
		for i := 0; next != nil && i < 4*maxHandled+8; i++ {
			s, _ = Record(s, Outcome{Action: *next, Done: true, By: ByServer}, o, now)
			s, next, _ = Decide(s, o, now)
		}
		if next != nil {
			t.Errorf("there is always something to do: %+v %+v", next, s)
		}
		for _, n := range notices {
			if n.Message == "" || !utf8.ValidString(n.Message) {
				t.Errorf("%+v", n)
			}
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add([]byte(`{"events":{"Preempt":{"action":"leave","acknowledge":"alone"}},"ignoreFreezeBelowSeconds":5,"aheadSeconds":900,"metricsFile":"/var/lib/node_exporter/ortet.prom","webhook":"https://hook.example/x"}`))
	f.Add([]byte(`{"events":{"Nap":{}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseSettings(text)
		if err != nil {
			return
		}
		for _, kind := range Types() {
			if r, _ := s.rule(Event{Type: kind, Duration: -1}); r.Do.rank() < 0 || r.Acknowledge == "" {
				t.Errorf("%s: %+v", kind, r)
			}
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"vmId":"x","events":[{"eventId":"E1","type":"Preempt","action":"leave","phase":"Begun","notBefore":"2026-11-21T12:00:30Z"}],"touched":true}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseState(text)
		if err != nil {
			return
		}
		Decide(s, Observed{Name: "pool1_3", BootID: "boot1", Document: Document{Events: []Event{{ID: "E1", Type: Preempt, Resources: []string{"pool1_3"}}}}}, time.Now())
	})
}

// A settings file is taken wholly or not at all.
func TestSettingsThatAreWrong(t *testing.T) {
	for _, c := range []struct{ text, why string }{
		{`{"events":{"Nap":{}}}`, `unknown type "Nap"`},
		{`{"events":{"Preempt":{"action":"run"}}}`, `action "run"`},
		{`{"events":{"Preempt":{"acknowledge":"soon"}}}`, `acknowledge "soon"`},
		{`{"event":{}}`, `unknown field`},
		{`{} {}`, "something follows"},
		{`{"aheadSeconds":-1}`, "aheadSeconds"},
		{`{"ignoreFreezeBelowSeconds":-1}`, "ignoreFreezeBelowSeconds"},
		{`{"metricsFile":"/x"}`, ".prom"},
		{`{"webhook":"http://hook.example/"}`, "want https"},
		{`{"webhookCAFile":"/x"}`, "without a webhook"},
	} {
		if _, err := ParseSettings([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %s", c.text, err, c.why)
		}
	}
}

// Pods are given what they want, or what is left; a budget as long as that fits.
func TestPushes(t *testing.T) {
	begun := epoch()
	fits := func(grace uint16, left uint16, terminating bool) bool {
		g, until := int64(grace%600), begun.Add(time.Duration(left%900+1)*time.Second)
		var p pod
		p.Spec.Grace = &g
		if terminating {
			end := begun.Add(time.Hour)
			p.Metadata.DeletionTime = &end
		}
		for _, u := range pushes([]pod{p}, begun, until, begun) {
			given := g
			if u.grace >= 0 {
				given = u.grace
			}
			if given > max(int64(until.Sub(begun)/time.Second), 1) || given < 1 && g > 0 || u.delete != terminating {
				return false
			}
		}
		return true
	}
	if err := quick.Check(fits, nil); err != nil {
		t.Error(err)
	}
}

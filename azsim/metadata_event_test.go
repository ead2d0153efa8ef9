package azsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/ortet/ortet/azsim/metadata"
)

const eventsPath = "/metadata/scheduledevents?api-version=2020-07-01"

// enableEvents asks for the first time, and lets the time pass until events are
// shown.
func enableEvents(t *testing.T, h http.Handler) {
	t.Helper()
	if w := ask(h, "GET", eventsPath, ""); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	time.Sleep(DefaultProfile()["events.enable"].Max)
}

// A shownDocument is what an instance is told.
type shownDocument struct {
	DocumentIncarnation int
	Events              []metadata.ScheduledEvent
}

func document(t *testing.T, h http.Handler) shownDocument {
	t.Helper()
	w := ask(h, "GET", eventsPath, "")
	var d shownDocument
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || w.Code != 200 {
		t.Fatalf("%d %s %v", w.Code, w.Body, err)
	}
	return d
}

// told is the document as text: "Reboot Scheduled pool1_0".
func told(t *testing.T, h http.Handler) string {
	t.Helper()
	var out []string
	for _, e := range document(t, h).Events {
		out = append(out, e.EventType+" "+e.EventStatus+" "+strings.Join(e.Resources, ","))
	}
	return strings.Join(out, "; ")
}

func approve(h http.Handler, ids ...string) int {
	var list []string
	for _, id := range ids {
		list = append(list, fmt.Sprintf(`{"EventId":%q}`, id))
	}
	return ask(h, "POST", eventsPath, `{"StartRequests":[`+strings.Join(list, ",")+`]}`).Code
}

func wantTold(t *testing.T, h http.Handler, want string) {
	t.Helper()
	synctest.Wait()
	if got := told(t, h); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

func spotPool(policy armcompute.VirtualMachineEvictionPolicyTypes) func(*armcompute.VirtualMachineScaleSet) {
	return func(b *armcompute.VirtualMachineScaleSet) {
		b.Properties.VirtualMachineProfile.Priority = ptr(armcompute.VirtualMachinePriorityTypesSpot)
		b.Properties.VirtualMachineProfile.EvictionPolicy = ptr(policy)
	}
}

func tellingPool(timeout string) func(*armcompute.VirtualMachineScaleSet) {
	return func(b *armcompute.VirtualMachineScaleSet) {
		b.Properties.VirtualMachineProfile.ScheduledEventsProfile = &armcompute.ScheduledEventsProfile{
			TerminateNotificationProfile: &armcompute.TerminateNotificationProfile{Enable: ptr(true), NotBeforeTimeout: ptr(timeout)}}
	}
}

func TestEventsAreEnabledByTheFirstRequest(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		h := l.sub.computer(t, "pool1000001").IMDS
		id := val(l.vm("pool1", "0").ID)
		if _, err := l.s.Schedule(id, EventFreeze, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		first := document(t, h)
		if waited := time.Since(begun); len(first.Events) != 0 || waited < time.Second || waited > 2*time.Minute {
			t.Errorf("the first answer took %v: %+v", waited, first)
		}
		begun = time.Now()
		if again := document(t, h); again.DocumentIncarnation != first.DocumentIncarnation || time.Since(begun) != 0 {
			t.Errorf("the second took %v: %+v", time.Since(begun), again)
		}
		time.Sleep(5 * time.Minute)
		if later := document(t, h); len(later.Events) != 1 || later.DocumentIncarnation == first.DocumentIncarnation {
			t.Errorf("five minutes later %+v", later)
		}
		// Nobody asked for a day: the next request is a first one.
		time.Sleep(25 * time.Hour)
		begun = time.Now()
		if d := document(t, h); time.Since(begun) < time.Second || len(d.Events) != 0 {
			t.Errorf("after a day, %v: %+v", time.Since(begun), d)
		}
	})
}

// Each type of event: what is told, and what becomes of the instance.
func TestScheduledEvents(t *testing.T) {
	for _, c := range []struct {
		kind   string
		notice time.Duration // Azure's least
		pool   func(*armcompute.VirtualMachineScaleSet)
		during string   // power while it has Started
		after  []string // the instances
		boots  int
		left   int64
	}{
		{EventFreeze, 15 * time.Minute, nil, powerRunning, []string{"0 Succeeded running", "1 Succeeded running"}, 1, 2},
		{EventReboot, 15 * time.Minute, nil, powerRunning, []string{"0 Succeeded running", "1 Succeeded running"}, 2, 2},
		{EventRedeploy, 10 * time.Minute, nil, powerStarting, []string{"0 Succeeded running", "1 Succeeded running"}, 2, 2},
		{EventPreempt, 30 * time.Second, spotPool(armcompute.VirtualMachineEvictionPolicyTypesDeallocate), powerDeallocated, []string{"0 Succeeded deallocated", "1 Succeeded running"}, 1, 2},
		{EventPreempt, 30 * time.Second, spotPool(armcompute.VirtualMachineEvictionPolicyTypesDelete), "", []string{"1 Succeeded running"}, 1, 1},
		{EventTerminate, 5 * time.Minute, nil, "", []string{"1 Succeeded running"}, 1, 1},
		{EventTerminate, 12 * time.Minute, tellingPool("PT12M"), "", []string{"1 Succeeded running"}, 1, 1},
	} {
		t.Run(c.kind, func(t *testing.T) {
			withPool(t, 2, c.pool, func(t *testing.T, l *lab) {
				h := l.sub.computer(t, "pool1000001").IMDS // a neighbour hears of it as well
				enableEvents(t, h)
				id := val(l.vm("pool1", "0").ID)
				disk := l.sub.computer(t, "pool1000000").OSDisk
				before := document(t, h)
				event, err := l.s.Schedule(id, c.kind, 0)
				if err != nil {
					t.Fatal(err)
				}
				now := time.Now()
				d := document(t, h)
				if len(d.Events) != 1 || d.DocumentIncarnation <= before.DocumentIncarnation {
					t.Fatalf("%+v", d)
				}
				e := d.Events[0]
				if e.EventID != event || e.EventStatus != "Scheduled" || e.EventType != c.kind || e.Resources[0] != "pool1_0" || e.ResourceType != "VirtualMachine" ||
					e.NotBefore != now.Add(c.notice).UTC().Format(http.TimeFormat) || e.EventSource != "Platform" {
					t.Errorf("%+v", e)
				}
				time.Sleep(c.notice - time.Second)
				wantTold(t, h, c.kind+" Scheduled pool1_0")
				if len(l.sub.names()) != 2 {
					t.Error("begun before its time")
				}
				time.Sleep(time.Second)
				synctest.Wait()
				switch got := told(t, h); {
				case c.during == powerDeallocated: // that takes the simulator no time
				case got != c.kind+" Started pool1_0":
					t.Errorf("told %q", got)
				case document(t, h).Events[0].NotBefore != "":
					t.Error("NotBefore is there after the start")
				}
				if c.during != "" {
					if got := power(l.vm("pool1", "0")); got != c.during {
						t.Errorf("%s meanwhile", got)
					}
				}
				time.Sleep(10 * time.Minute)
				wantTold(t, h, "")
				wantList(t, "after it", l.ids("pool1"), c.after...)
				if n := len(l.sub.booted["pool1_0"]); n != c.boots {
					t.Errorf("%d boots, want %d", n, c.boots)
				}
				if c.boots == 2 && l.sub.computer(t, "pool1000000").OSDisk != disk {
					t.Error("another OS disk")
				}
				if n := val(l.set("pool1").SKU.Capacity); n != c.left {
					t.Errorf("capacity %d, want %d", n, c.left)
				}
			})
		})
	}
}

func TestEventIsApprovedForAll(t *testing.T) {
	withPool(t, 3, nil, func(t *testing.T, l *lab) {
		h := l.sub.computer(t, "pool1000002").IMDS
		enableEvents(t, h)
		var ids []string
		for _, n := range []string{"0", "1"} {
			ids = append(ids, val(l.vm("pool1", n).ID))
		}
		event, err := l.s.ScheduleEvent(Event{Type: EventReboot, Instances: ids})
		if err != nil {
			t.Fatal(err)
		}
		if got := approve(h, "602d9444-d2cd-49c7-8624-8643e7171297"); got != 400 {
			t.Errorf("an event that is not there: %d", got)
		}
		if got := approve(h, event, "602d9444-d2cd-49c7-8624-8643e7171297"); got != 400 {
			t.Errorf("one of two that is not there: %d", got)
		}
		wantTold(t, h, "Reboot Scheduled pool1_0,pool1_1")
		if got := approve(h, event); got != 200 { // by one whom it does not concern
			t.Errorf("%d", got)
		}
		time.Sleep(time.Second)
		wantTold(t, h, "Reboot Started pool1_0,pool1_1")
		if got := approve(h, event); got != 200 {
			t.Errorf("again: %d", got)
		}
		time.Sleep(2 * time.Minute)
		wantTold(t, h, "")
		if a, b, c := len(l.sub.booted["pool1_0"]), len(l.sub.booted["pool1_1"]), len(l.sub.booted["pool1_2"]); a != 2 || b != 2 || c != 1 {
			t.Errorf("booted %d, %d and %d times", a, b, c)
		}
		if got := approve(h, event); got != 400 {
			t.Errorf("when it is over: %d", got)
		}
	})
}

func TestEventsStayInTheirPlacementGroup(t *testing.T) {
	withPool(t, 102, func(b *armcompute.VirtualMachineScaleSet) { b.Properties.SinglePlacementGroup = ptr(false) }, func(t *testing.T, l *lab) {
		near, far := l.sub.computer(t, computerName("pool1", 1)).IMDS, l.sub.computer(t, computerName("pool1", 101)).IMDS
		enableEvents(t, near)
		enableEvents(t, far)
		event, err := l.s.Schedule(val(l.vm("pool1", "0").ID), EventReboot, 0)
		if err != nil {
			t.Fatal(err)
		}
		wantTold(t, near, "Reboot Scheduled pool1_0")
		wantTold(t, far, "")
		if got := approve(far, event); got != 400 {
			t.Errorf("approved from afar: %d", got)
		}
		if _, err := l.s.ScheduleEvent(Event{Type: EventReboot, Instances: []string{val(l.vm("pool1", "0").ID), val(l.vm("pool1", "101").ID)}}); err == nil {
			t.Error("an event of two groups")
		}
		const path = "/metadata/instance/compute/placementGroupId?api-version=2025-04-07&format=text"
		if a, b := ask(near, "GET", path, "").Body.String(), ask(far, "GET", path, "").Body.String(); a == b || len(a) != 36 {
			t.Errorf("placement groups %q and %q", a, b)
		}
	})
}

func TestDeletionsWaitForEachOther(t *testing.T) {
	withPool(t, 4, tellingPool("PT10M"), func(t *testing.T, l *lab) {
		h := l.sub.computer(t, "pool1000000").IMDS
		enableEvents(t, h)
		p, err := l.sets.BeginDeleteInstances(t.Context(), labGroup, "pool1", armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{ptr("1"), ptr("2"), ptr("3")}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantTold(t, h, "Terminate Scheduled pool1_1; Terminate Scheduled pool1_2; Terminate Scheduled pool1_3")
		if n := val(l.set("pool1").SKU.Capacity); n != 1 {
			t.Errorf("capacity %d", n)
		}
		wantList(t, "told", l.ids("pool1"), "0 Succeeded running", "1 Deleting running", "2 Deleting running", "3 Deleting running")
		// Whoever goes is still served, and can be asked for nothing any more.
		leaver := l.sub.computer(t, "pool1000001").IMDS
		if w := ask(leaver, "GET", "/metadata/instance?api-version=2025-04-07", ""); w.Code != 200 {
			t.Errorf("%d", w.Code)
		}
		_, err = l.vms.BeginRestart(t.Context(), labGroup, "pool1", "1", nil)
		wantRefusal(t, err, "OperationNotAllowed", "marked for deletion")
		var events []string
		for _, e := range document(t, h).Events {
			if e.EventSource != "User" {
				t.Errorf("%+v", e)
			}
			events = append(events, e.EventID)
		}
		time.Sleep(time.Minute)
		if got := approve(leaver, events[0]); got != 200 {
			t.Error(got)
		}
		if got := approve(leaver, events[1]); got != 200 {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		if len(l.sub.names()) != 4 {
			t.Errorf("deleted while another deletion was not approved: %v", l.sub.names())
		}
		approve(h, events[2])
		time.Sleep(time.Second)
		synctest.Wait()
		wantList(t, "computers", l.sub.names(), "pool1000000")
		for _, path := range []string{"/metadata/instance?api-version=2025-04-07", "/metadata/attested/document?api-version=2025-04-07", eventsPath, "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=r"} {
			if w := ask(leaver, "GET", path, ""); w.Code != 410 {
				t.Errorf("%s once it is over: %d", path, w.Code)
			}
		}
		done(t, p, nil)
		wantTold(t, h, "")
	})
}

func TestTerminateComesByItself(t *testing.T) {
	withPool(t, 3, tellingPool("PT5M"), func(t *testing.T, l *lab) {
		h := l.sub.computer(t, "pool1000000").IMDS
		// Nobody has asked for events: the notice is waited for all the same.
		begun := time.Now()
		if err := l.scale("pool1", 2); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 5*time.Minute {
			t.Errorf("scaled in within %v", took)
		}
		wantList(t, "after it", l.ids("pool1"), "0 Succeeded running", "1 Succeeded running")
		enableEvents(t, h)
		wantTold(t, h, "")
		// Neither a stop nor an eviction is told of as a Terminate.
		off, err := l.vms.BeginPowerOff(t.Context(), labGroup, "pool1", "1", nil)
		if err != nil {
			t.Fatal(err)
		}
		wantTold(t, h, "")
		done(t, off, nil)
		// One that does not run has nothing to be told.
		begun = time.Now()
		del, err := l.vms.BeginDelete(t.Context(), labGroup, "pool1", "1", nil)
		done(t, del, err)
		if took := time.Since(begun); took > 4*time.Minute {
			t.Errorf("deleted within %v", took)
		}
	})
	for timeout, want := range map[string]string{"PT4M": "InvalidParameter", "PT16M": "InvalidParameter", "soon": "InvalidParameter", "PT15M": "", "PT7M30S": ""} {
		synctest.Test(t, func(t *testing.T) {
			s := &Server{}
			defer s.Close()
			s.Instant(true)
			l := newLab(t, s)
			body := pool(0)
			tellingPool(timeout)(&body)
			_, err := l.sets.BeginCreateOrUpdate(t.Context(), labGroup, "pool1", body, nil)
			if code(err) != want {
				t.Errorf("%s: %v", timeout, err)
			}
			spotPool(armcompute.VirtualMachineEvictionPolicyTypesDelete)(&body)
			if _, err := l.sets.BeginCreateOrUpdate(t.Context(), labGroup, "pool2", body, nil); code(err) == "" {
				t.Error("terminate notifications on Spot")
			}
		})
	}
}

func TestUserIsHeldUpByEvents(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		restart := func() (end func() time.Duration) {
			begun := time.Now()
			p, err := l.vms.BeginRestart(t.Context(), labGroup, "pool1", "0", nil)
			if err != nil {
				t.Fatal(err)
			}
			return func() time.Duration {
				done(t, p, nil)
				return time.Since(begun)
			}
		}
		end := restart()
		if took := end(); took > 2*time.Minute {
			t.Errorf("where nobody hears of events it takes %v", took)
		}
		h := l.sub.computer(t, "pool1000000").IMDS
		enableEvents(t, h)
		end = restart()
		wantTold(t, h, "Reboot Scheduled pool1_0")
		d := document(t, h).Events[0]
		if d.EventSource != "User" {
			t.Errorf("%+v", d)
		}
		if took := end(); took < 15*time.Minute {
			t.Errorf("without an approval it takes %v", took)
		}
		end = restart()
		synctest.Wait()
		approve(h, document(t, h).Events[0].EventID)
		if took := end(); took > 2*time.Minute {
			t.Errorf("approved, it takes %v", took)
		}
		wantTold(t, h, "")
	})
}

func TestHardwareFails(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		h := l.sub.computer(t, "pool1000001").IMDS
		enableEvents(t, h)
		comp := l.sub.computer(t, "pool1000000")
		if err := l.s.FailHardware(comp.ResourceID); err != nil {
			t.Fatal(err)
		}
		wantTold(t, h, "Reboot Started pool1_0")
		wantList(t, "computers", l.sub.names(), "pool1000001")
		if l.sub.unclean[comp.ID] != 1 {
			t.Error("it shut down in order")
		}
		if err := l.s.FailHardware(comp.ResourceID); err == nil {
			t.Error("it failed twice at once")
		}
		time.Sleep(5 * time.Minute)
		wantTold(t, h, "")
		wantList(t, "afterwards", l.ids("pool1"), "0 Succeeded running", "1 Succeeded running")
	})
}

func TestEventIsCanceled(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		h := l.sub.computer(t, "pool1000000").IMDS
		enableEvents(t, h)
		event, err := l.s.Schedule(val(l.vm("pool1", "0").ID), EventReboot, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if !l.s.CancelEvent(event) || l.s.CancelEvent(event) {
			t.Error("it could not be canceled, or twice")
		}
		wantTold(t, h, "")
		time.Sleep(5 * time.Minute)
		if n := len(l.sub.booted["pool1_0"]); n != 1 {
			t.Errorf("booted %d times", n)
		}
	})
}

func TestEventsThatCannotBe(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		id := val(l.vm("pool1", "0").ID)
		for _, v := range []Event{
			{Type: EventReboot}, {Type: "Meteor", Instances: []string{id}}, {Type: EventReboot, Instances: []string{id + "9"}},
			{Type: EventPreempt, Instances: []string{id}}, {Type: EventReboot, Instances: []string{id}, Notice: -1},
			{Type: EventReboot, Instances: []string{*l.set("pool1").ID}},
		} {
			if _, err := l.s.ScheduleEvent(v); err == nil {
				t.Errorf("%+v was taken", v)
			}
		}
		off, err := l.vms.BeginDeallocate(t.Context(), labGroup, "pool1", "0", nil)
		done(t, off, err)
		if _, err := l.s.Schedule(id, EventReboot, 0); err == nil {
			t.Error("an instance that is off has an event")
		}
	})
}

func TestEventOfADeletedInstanceGoes(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		h := l.sub.computer(t, "pool1000001").IMDS
		enableEvents(t, h)
		if _, err := l.s.Schedule(val(l.vm("pool1", "0").ID), EventReboot, 0); err != nil {
			t.Fatal(err)
		}
		del, err := l.vms.BeginDelete(t.Context(), labGroup, "pool1", "0", nil)
		if err != nil {
			t.Fatal(err)
		}
		wantTold(t, h, "")
		done(t, del, nil)
	})
}

func TestControlOfEvents(t *testing.T) {
	withPool(t, 2, nil, func(t *testing.T, l *lab) {
		h := l.sub.computer(t, "pool1000001").IMDS
		enableEvents(t, h)
		control := func(method, path string) (int, string) {
			r := httptest.NewRequest(method, "/azsim/"+path, nil)
			r.RemoteAddr = "127.0.0.1:1"
			w := httptest.NewRecorder()
			l.s.ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		id := val(l.vm("pool1", "0").ID)
		at := url.QueryEscape(time.Now().Add(2 * time.Minute).Format(time.RFC3339))
		for _, query := range []string{"type=Reboot&notBefore=90s&source=User", "type=Freeze&notBefore=" + at, "type=Redeploy&instance=" + val(l.vm("pool1", "1").ID)} {
			if status, body := control("POST", "events?instance="+id+"&"+query); status != 201 || !strings.Contains(body, "EventId") {
				t.Errorf("%s: %d %s", query, status, body)
			}
		}
		wantTold(t, h, "Reboot Scheduled pool1_0; Freeze Scheduled pool1_0; Redeploy Scheduled pool1_0,pool1_1")
		d := document(t, h)
		if e := d.Events[0]; e.EventSource != "User" || e.NotBefore != time.Now().Add(90*time.Second).UTC().Format(http.TimeFormat) {
			t.Errorf("%+v", e)
		}
		if a, b := d.Events[1].NotBefore, time.Now().Add(2*time.Minute).UTC().Format(http.TimeFormat); a != b {
			t.Errorf("not before %s, want %s", a, b)
		}
		if status, body := control("GET", "events"); status != 200 || strings.Count(body, `"EventStatus":"Scheduled"`) != 3 {
			t.Errorf("%d %s", status, body)
		}
		for _, e := range d.Events {
			if status, body := control("DELETE", "events/"+e.EventID); status != 200 || !strings.Contains(body, "true") {
				t.Errorf("%d %s", status, body)
			}
		}
		wantTold(t, h, "")
		for _, query := range []string{"type=Reboot", "type=None&instance=" + id, "type=Reboot&notBefore=soon&instance=" + id, "type=Reboot&notBefore=-1s&instance=" + id, "type=HardwareFailure&instance=none"} {
			if status, body := control("POST", "events?"+query); status != 400 || !strings.Contains(body, "InvalidEvent") {
				t.Errorf("%s: %d %s", query, status, body)
			}
		}
		if status, body := control("POST", "events?type=HardwareFailure&instance="+id); status != 204 {
			t.Errorf("%d %s", status, body)
		}
		wantTold(t, h, "Reboot Started pool1_0")
	})
}

func TestMetadataServiceForOtherProcesses(t *testing.T) {
	withPool(t, 1, nil, func(t *testing.T, l *lab) {
		id := val(l.vm("pool1", "0").ID)
		h, err := l.s.IMDS(strings.ToUpper(id))
		if err != nil {
			t.Fatal(err)
		}
		enableEvents(t, h)
		event, err := l.s.Schedule(id, EventFreeze, 0)
		if err != nil {
			t.Fatal(err)
		}
		through := func(method, path, from, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, imdsPath[:len(imdsPath)-1]+path, strings.NewReader(body))
			r.Header.Set("Metadata", "true")
			r.RemoteAddr = from
			w := httptest.NewRecorder()
			l.s.ServeHTTP(w, r)
			return w
		}
		if w := through("GET", id+"/metadata/instance/compute/name?api-version=2025-04-07&format=text", "127.0.0.1:1", ""); w.Code != 200 || w.Body.String() != "pool1_0" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := through("POST", id+eventsPath, "127.0.0.1:1", `{"StartRequests":[{"EventId":"`+event+`"}]}`); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		wantTold(t, h, "Freeze Started pool1_0")
		for path, want := range map[string]int{id: 404, id + "9/metadata/instance": 404, "/metadata/instance": 404} {
			if w := through("GET", path, "127.0.0.1:1", ""); w.Code != want {
				t.Errorf("%s: %d", path, w.Code)
			}
		}
		if w := through("GET", id+"/metadata/instance", "10.0.0.9:1", ""); w.Code != 403 {
			t.Errorf("from another computer: %d", w.Code)
		}
		if _, err := l.s.IMDS(id + "9"); err == nil {
			t.Error("a metadata service without an instance")
		}
		l.create("metadata", pool(1))
		if w := through("GET", val(l.vm("metadata", "0").ID)+"/metadata/instance/compute/name?api-version=2025-04-07&format=text", "127.0.0.1:1", ""); w.Code != 200 || w.Body.String() != "metadata_0" {
			t.Errorf("of an instance whose id has that word in it: %d %s", w.Code, w.Body)
		}
	})
}

func FuzzParseNotice(f *testing.F) {
	now := time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)
	f.Add("90s")
	f.Add("2026-11-21T17:05:00Z")
	f.Add("-9223372036854775808ns")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := parseNotice(text, now); d < 0 || err == nil && d == 0 && text != "" {
			t.Errorf("%q: %v %v", text, d, err)
		}
	})
}

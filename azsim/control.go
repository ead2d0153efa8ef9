package azsim

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// control answers the simulator's own endpoints:
//
//	GET    /azsim/faults         the faults that are on
//	POST   /azsim/faults         switches a Fault on
//	DELETE /azsim/faults[/NAME]  switches faults off
//	GET    /azsim/requests       the last requests; ?since=SEQ leaves out older ones
//	*      /azsim/imds/ID/PATH   the metadata service of an instance: see imdsPath
//	GET    /azsim/operations     the operations that run
//	GET    /azsim/events         the scheduled events of all instances
//	POST   /azsim/events         ?instance=ID&type=TYPE: schedules one; see schedule
//	DELETE /azsim/events/ID      cancels one that has not begun
//	POST   /azsim/status         ?instance=ID&extension=NAME: a handler's status file, reported
func (c *call) control(path string) *reply {
	if !c.mayControl() {
		return errorReply(refuse(http.StatusForbidden, "Forbidden", "The simulator's own endpoints are for this computer, or for the bearer of its admin token."))
	}
	s := c.s
	name := ""
	if rest, found := strings.CutPrefix(path, "faults/"); found {
		path, name = "faults", rest
	}
	if rest, found := strings.CutPrefix(path, "events/"); found {
		path, name = "events", rest
	}
	switch c.r.Method + " " + path {
	case "GET faults":
		return ok(map[string]any{"value": s.FaultsNow()})
	case "POST faults":
		var f Fault
		d := json.NewDecoder(strings.NewReader(string(c.body)))
		d.DisallowUnknownFields()
		if err := d.Decode(&f); err != nil {
			return errorReply(badRequest("InvalidFault", "The body is no fault: %v.", err))
		}
		if err := s.AddFault(f); err != nil {
			return errorReply(badRequest("InvalidFault", "%v.", err))
		}
		return &reply{status: http.StatusCreated, body: map[string]any{"value": s.FaultsNow()}}
	case "DELETE faults":
		return ok(map[string]any{"removed": s.RemoveFault(name)})
	case "GET requests":
		since, _ := strconv.Atoi(c.query("since"))
		list := []Request{}
		for _, r := range s.Requests() {
			if r.Seq > since {
				list = append(list, r)
			}
		}
		return ok(map[string]any{"value": list})
	case "POST status":
		told, err := ParseStatusFile(c.body)
		if err != nil {
			return errorReply(badRequest("InvalidStatus", "%v.", err))
		}
		told.Name = c.query("extension")
		if err := s.Report(c.query("instance"), Report{Extensions: []ExtensionReport{told}}); err != nil {
			return errorReply(badRequest("InvalidStatus", "%v.", err))
		}
		return &reply{status: http.StatusNoContent}
	case "GET events":
		return ok(map[string]any{"value": s.Events()})
	case "POST events":
		return c.schedule()
	case "DELETE events":
		return ok(map[string]any{"canceled": s.CancelEvent(name)})
	case "GET operations":
		return ok(map[string]any{"value": s.runningOperations()})
	}
	return errorReply(refuse(http.StatusNotFound, "NotFound", "There is no %s /azsim/%s.", c.r.Method, path))
}

// hardwareFailure is the "type" of an event that FailHardware makes.
const hardwareFailure = "HardwareFailure"

// schedule posts an event:
//
//	instance   ids of instances, may be repeated
//	type       Freeze, Reboot, Redeploy, Preempt, Terminate, or HardwareFailure
//	notBefore  how long from now, "90s", or a time as RFC 3339; Azure's minimum if missing
//	source     User or Platform
func (c *call) schedule() *reply {
	bad := func(err error) *reply { return errorReply(badRequest("InvalidEvent", "%v.", err)) }
	q := c.r.URL.Query()
	v := Event{Type: c.query("type"), Instances: q["instance"], User: strings.EqualFold(c.query("source"), "User")}
	var err error
	if v.Notice, err = parseNotice(c.query("notBefore"), c.now); err != nil {
		return bad(err)
	}
	if v.Type == hardwareFailure {
		for _, id := range v.Instances {
			if err := c.s.FailHardware(id); err != nil {
				return bad(err)
			}
		}
		return &reply{status: http.StatusNoContent}
	}
	id, err := c.s.ScheduleEvent(v)
	if err != nil {
		return bad(err)
	}
	return &reply{status: http.StatusCreated, body: map[string]any{"EventId": id}}
}

// parseNotice reads how long from now something is: "90s", or a time; 0 for "".
func parseNotice(text string, now time.Time) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		when, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return 0, fmt.Errorf("notBefore %q: want a duration such as 90s, or a time as RFC 3339", text)
		}
		d = when.Sub(now)
	}
	if d <= 0 {
		return 0, fmt.Errorf("notBefore %q is past", text)
	}
	return d, nil
}

// mayControl says whether the request may use the simulator's own endpoints.
func (c *call) mayControl() bool {
	if c.s.AdminToken != "" {
		_, token, _ := strings.Cut(c.r.Header.Get("Authorization"), " ")
		return token == c.s.AdminToken
	}
	if c.r.RemoteAddr == "" { // a Transport
		return true
	}
	host, _, err := net.SplitHostPort(c.r.RemoteAddr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Requests returns the last requests, oldest first.
func (s *Server) Requests() []Request {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

func (s *Server) runningOperations() []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []any{}
	for _, e := range s.order {
		if e.op != nil && e.op.running() {
			out = append(out, map[string]any{"id": e.op.id, "name": e.op.name, "resource": e.id.String(), "startTime": e.op.start.UTC().Format(time.RFC3339Nano)})
		}
	}
	return out
}

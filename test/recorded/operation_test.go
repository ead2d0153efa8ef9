package recorded

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An operation of azsim that is under way.
type operation struct {
	result  *result
	request *interaction
	later   []interaction // behind the request
	url     string
	polled  bool         // by Azure-AsyncOperation
	last    *interaction // recorded poll; nil without one
}

func isPoll(i *interaction) bool { return i.Method == http.MethodGet && pollPath.MatchString(i.path()) }

// operationKey is the last segment of an operation's path: a recorder may have renamed what
// stands before it.
func operationKey(uri string) string {
	path, _, _ := strings.Cut(uri, "?")
	return strings.ToLower(path[strings.LastIndexByte(path, '/')+1:])
}

// lastPoll finds the last recorded poll of the request's operation.
func (r *replayer) lastPoll(i *interaction, later []interaction) (last *interaction) {
	keys := i.operations()
	for n := range later {
		if isPoll(&later[n]) && slices.Contains(keys, operationKey(later[n].URI)) && r.pending[&later[n]] == nil {
			last = &later[n]
		}
	}
	return last
}

// finish follows azsim's operation to its end, and compares that with the recorded end.
func (r *replayer) finish(op *operation) error {
	begin := time.Now()
	var got *answer
	for {
		var err error
		if got, err = r.send(http.MethodGet, op.url, nil); err != nil {
			return err
		}
		if got.status >= http.StatusBadRequest || got.status != http.StatusAccepted && terminal(statusOf(got.body)) {
			break
		}
		if got.status != http.StatusAccepted && !op.polled {
			break
		}
		if time.Since(begin) > operationMax {
			return errors.New("azsim's operation does not end")
		}
		seconds, _ := strconv.Atoi(got.header.Get("Retry-After"))
		time.Sleep(time.Duration(max(seconds, 1)) * time.Second)
	}
	want := "Succeeded "
	if op.last != nil {
		want = outcome(op.last.Status, op.last.Response)
	}
	if have := outcome(got.status, got.body); want != "" && want != have {
		op.result.end(status, fmt.Sprintf("operation %s, azsim's %s", strings.TrimSpace(want), strings.TrimSpace(have)))
		op.result.detail = short(got.body)
		if strings.HasPrefix(have, "Failed") {
			r.blame(op.result, op.request, op.later)
		}
	}
	return nil
}

func statusOf(body any) string {
	object, _ := body.(map[string]any)
	text, _ := object["status"].(string)
	return text
}

func terminal(status string) bool {
	return slices.Contains([]string{"Succeeded", "Failed", "Canceled"}, status)
}

// outcome is how an operation ended by its last poll, with the error's code; "" while it is
// under way.
func outcome(status int, body any) string {
	switch said := statusOf(body); {
	case status >= http.StatusBadRequest:
		return "Failed " + code(body)
	case terminal(said):
		return said + " " + code(body)
	case status == http.StatusAccepted || said != "":
		return ""
	}
	return "Succeeded "
}

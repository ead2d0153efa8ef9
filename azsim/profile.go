package azsim

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A Span is how long one kind of operation takes: a time between Min and Max.
type Span struct {
	Min, Max time.Duration
}

// A Profile gives the durations of operations, by what is done. An operation
// that it does not name takes DefaultSpan.
type Profile map[string]Span

// DefaultSpan is what an operation takes that no profile names.
var DefaultSpan = Span{2 * time.Second, 5 * time.Second}

// DefaultProfile returns the durations of recorded operations, from the tenth to the ninetieth
// of a hundred; test/recorded/testdata/pace.txt has the samples. Where there are fewer than twenty,
// the span also holds what was taken before: the logs that kamino's authors published (stop,
// image version), and usual figures. Spans without a remark have no samples.
func DefaultProfile() Profile {
	const ms, s = time.Millisecond, time.Second
	return Profile{
		"disk.create":         {100 * ms, 700 * ms},  // recorded
		"disk.update":         {100 * ms, 700 * ms},  // recorded: the same PUT
		"disk.delete":         {200 * ms, 5 * s},     // few recorded
		"disk.access":         {200 * ms, 3 * s},     // few recorded
		"snapshot.create":     {100 * ms, 1400 * ms}, // recorded
		"snapshot.update":     {100 * ms, 1400 * ms}, // recorded: the same PUT
		"snapshot.delete":     {200 * ms, 5 * s},     // few recorded
		"snapshot.copy":       {300 * s, 1800 * s},   // of CopyStart, after the operation
		"gallery.create":      {100 * ms, 300 * ms},  // recorded, with definitions
		"gallery.update":      {100 * ms, 300 * ms},  // recorded: the same PUT
		"gallery.delete":      {100 * ms, 30 * s},    // few recorded
		"image.create":        {100 * ms, 300 * ms},  // recorded, with galleries
		"image.update":        {100 * ms, 300 * ms},  // recorded: the same PUT
		"image.delete":        {100 * ms, 30 * s},    // few recorded
		"managedImage.create": {5 * s, 15 * s},       // not from samples; 28 recorded, of 5 to 30 s
		"managedImage.update": {1 * s, 5 * s},
		"managedImage.delete": {5 * s, 15 * s},     // not from samples; 4 recorded, of 5 s
		"version.create":      {360 * s, 6266 * s}, // few recorded, and kamino
		"version.shallow":     {60 * s, 180 * s},
		"version.update":      {30 * s, 90 * s},
		"version.delete":      {56 * s, 300 * s},  // few recorded
		"stored.write":        {1 * s, 4 * s},     // networks and storage accounts; recorded
		"stored.delete":       {1 * s, 10 * s},    // few recorded
		"group.delete":        {125 * s, 902 * s}, // recorded
		"provider.register":   {10 * s, 30 * s},
		"scaleset.create":     {1 * s, 15 * s},    // without its instances; few recorded
		"scaleset.update":     {100 * ms, 20 * s}, // without its instances; few recorded
		"scaleset.delete":     {2 * s, 60 * s},    // few recorded
		"instance.create":     {54 * s, 143 * s},  // recorded, of virtual machines
		"instance.allocate":   {20 * s, 45 * s},   // of instance.create, before the boot
		"instance.start":      {3 * s, 60 * s},    // few recorded
		"instance.poweroff":   {5 * s, 183 * s},   // few recorded, and kamino
		"instance.deallocate": {22 * s, 264 * s},  // recorded, most of virtual machines
		"instance.restart":    {7 * s, 90 * s},    // few recorded
		"instance.reimage":    {64 * s, 180 * s},  // few recorded
		"instance.redeploy":   {119 * s, 300 * s}, // few recorded
		"instance.delete":     {1 * s, 90 * s},    // few recorded
		"instance.update":     {100 * ms, 40 * s}, // attach, detach, protection; few recorded
		"instance.upgrade":    {60 * s, 180 * s},  // few recorded
		"events.first":        {1 * s, 120 * s},   // the answer to the first request for scheduled events
		"events.enable":       {0, 300 * s},       // from there until they are shown
		"imds.userData":       {2 * s, 2 * s},     // from the end of its change until the metadata service shows it
		"event.freeze":        {5 * s, 10 * s},
		"extension.create":    {14 * s, 159 * s},                    // few recorded
		"extension.driver":    {10 * time.Minute, 10 * time.Minute}, // NVIDIA's; not recorded: "several minutes"
		"extension.delete":    {15 * s, 60 * s},                     // few recorded
	}
}

// retryAfter is what Retry-After says, as recorded: in the first answer, and in those to
// polls. The first that fits an operation's action counts.
var retryAfter = []struct {
	action      string // begins so, in lower case
	method      string // "" is any
	first, poll time.Duration
}{
	{"microsoft.compute/virtualmachinescalesets/write", http.MethodPut, 10 * time.Second, 61 * time.Second},
	{"microsoft.compute/virtualmachinescalesets/write", http.MethodPatch, 10 * time.Second, 37 * time.Second},
	{"microsoft.compute/virtualmachines/deallocate", "", 10 * time.Second, 36 * time.Second},
	{"microsoft.compute/virtualmachines/start", "", 10 * time.Second, 9 * time.Second},
	{"microsoft.compute/virtualmachines/write", http.MethodPut, 10 * time.Second, 30 * time.Second},
	{"microsoft.compute/virtualmachines/delete", "", 10 * time.Second, 30 * time.Second},
	{"microsoft.compute/disks/", "", 2 * time.Second, 2 * time.Second},
	{"microsoft.compute/snapshots/", "", 2 * time.Second, 2 * time.Second},
	// From the gaps between polls in recordings without the header.
	{"microsoft.compute/galleries/images/versions/", "", 60 * time.Second, 60 * time.Second},
	{"microsoft.network/publicipaddresses/write", "", time.Second, 2 * time.Second},
	{"microsoft.network/virtualnetworks/write", "", 3 * time.Second, 10 * time.Second},
	{"microsoft.network/networksecuritygroups/write", "", 3 * time.Second, 10 * time.Second},
	{"microsoft.storage/storageaccounts/write", "", 17 * time.Second, 17 * time.Second},
	{"microsoft.resources/subscriptions/resourcegroups/delete", "", 15 * time.Second, 15 * time.Second},
	{"", "", 10 * time.Second, 10 * time.Second},
}

// pause is how long a client should wait before it asks again, at the server's speed.
func (s *Server) pause(o *operation, polled bool) time.Duration {
	for _, r := range retryAfter {
		if strings.HasPrefix(strings.ToLower(o.name), r.action) && (r.method == "" || r.method == o.method) {
			if polled {
				return s.scaled(r.poll)
			}
			return s.scaled(r.first)
		}
	}
	return 0
}

// scaled divides d by the server's speed.
func (s *Server) scaled(d time.Duration) time.Duration {
	if s.Speed <= 0 || s.Speed == 1 {
		return d
	}
	return time.Duration(float64(d) / s.Speed)
}

// isoSeconds reads the seconds-and-minutes form of an ISO 8601 duration that the
// rolling upgrade policy uses ("PT30S", "PT5M"); 0 for anything else.
func isoSeconds(s string) time.Duration {
	var h, m, sec int
	for _, form := range []struct {
		text string
		args []any
	}{
		{"PT%dH%dM%dS", []any{&h, &m, &sec}}, {"PT%dH%dM", []any{&h, &m}}, {"PT%dM%dS", []any{&m, &sec}}, {"PT%dM", []any{&m}}, {"PT%dS", []any{&sec}}, {"PT%dH", []any{&h}},
	} {
		h, m, sec = 0, 0, 0
		if n, err := fmt.Sscanf(s, form.text, form.args...); err == nil && n == len(form.args) {
			return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(sec)*time.Second
		}
	}
	return 0
}

package azsim

import (
	"fmt"
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

// DefaultProfile returns published figures (stop, snapshot, image version: the logs
// that kamino's authors published), and usual ones for the rest.
func DefaultProfile() Profile {
	const s, m = time.Second, time.Minute
	return Profile{
		"disk.create":         {3 * s, 10 * s},
		"disk.update":         {1 * s, 5 * s},
		"disk.delete":         {1 * s, 5 * s},
		"disk.access":         {1 * s, 3 * s},
		"snapshot.create":     {4 * s, 8 * s},
		"snapshot.copy":       {5 * m, 30 * m}, // of CopyStart, after the operation
		"snapshot.update":     {1 * s, 3 * s},
		"snapshot.delete":     {1 * s, 5 * s},
		"gallery.create":      {10 * s, 30 * s},
		"gallery.update":      {5 * s, 15 * s},
		"gallery.delete":      {10 * s, 30 * s},
		"image.create":        {5 * s, 15 * s},
		"image.update":        {5 * s, 15 * s},
		"image.delete":        {10 * s, 30 * s},
		"managedImage.create": {5 * s, 15 * s},
		"managedImage.update": {1 * s, 5 * s},
		"managedImage.delete": {5 * s, 15 * s},
		"version.create":      {664 * s, 6266 * s},
		"version.shallow":     {60 * s, 180 * s},
		"version.update":      {30 * s, 90 * s},
		"version.delete":      {60 * s, 300 * s},
		"stored.write":        {1 * s, 4 * s}, // networks and storage accounts
		"stored.delete":       {1 * s, 4 * s},
		"group.delete":        {30 * s, 120 * s},
		"provider.register":   {10 * s, 30 * s},
		"scaleset.create":     {5 * s, 15 * s}, // without its instances
		"scaleset.update":     {5 * s, 20 * s},
		"scaleset.delete":     {20 * s, 60 * s},
		"instance.create":     {150 * s, 210 * s},
		"instance.allocate":   {20 * s, 45 * s}, // of instance.create, before the boot
		"instance.start":      {30 * s, 60 * s},
		"instance.poweroff":   {114 * s, 183 * s},
		"instance.deallocate": {114 * s, 183 * s},
		"instance.restart":    {40 * s, 90 * s},
		"instance.reimage":    {90 * s, 180 * s},
		"instance.redeploy":   {180 * s, 300 * s},
		"instance.delete":     {30 * s, 90 * s},
		"instance.update":     {10 * s, 40 * s}, // attach, detach, protection
		"instance.upgrade":    {60 * s, 180 * s},
		"events.first":        {1 * s, 120 * s}, // the answer to the first request for scheduled events
		"events.enable":       {0, 300 * s},     // from there until they are shown
		"imds.userData":       {2 * s, 2 * s},   // from the end of its change until the metadata service shows it
		"event.freeze":        {5 * s, 10 * s},
		"extension.create":    {20 * s, 60 * s},
		"extension.delete":    {20 * s, 60 * s},
	}
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

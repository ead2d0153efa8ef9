package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/image/plan"
)

// lanes are the subjects of a capture, each with its colour.
var lanes = []struct{ name, colour string }{
	{"Donor", "base"}, {"Copy", "node"}, {"Azure gallery", "platform"}, {"Scale set", "good"},
}

// laneOf has each step of a capture that takes time.
var laneOf = map[string]string{
	"inspect": "Donor", "protect": "Donor", "cordon": "Donor", "drain": "Donor", "stop": "Donor", "flush": "Donor", "confirm-boot": "Donor",
	"snapshot": "Donor", "start": "Donor", "uncordon": "Donor", "unprotect": "Donor",
	"protect-workbench": "Copy", "work-disk": "Copy", "attach": "Copy", "generalize": "Copy", "detach": "Copy",
	"unprotect-workbench": "Copy", "generalized-snapshot": "Copy", "delete-work-disk": "Copy",
	"gallery": "Azure gallery", "definition": "Azure gallery", "version": "Azure gallery",
	"delete-snapshot": "Azure gallery", "delete-generalized-snapshot": "Azure gallery",
	"model": "Scale set", "publish": "Azure gallery",
}

// A span is a step with the times at which it usually begins and ends.
type span struct {
	plan.Step
	begin, end time.Duration
}

// schedule puts the steps one after the other, as the runner does: a skipped step ends at once.
func schedule(steps []plan.Step) (all []span, of map[string]span, total time.Duration) {
	of = map[string]span{}
	begin, end := plan.Schedule(steps)
	for _, step := range steps {
		s := span{step, begin[step.ID], end[step.ID]}
		total = max(total, s.end)
		all, of[s.ID] = append(all, s), s
	}
	return all, of, total
}

func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return strings.Replace(s, "m", " min ", 1)
}

func brief(d time.Duration) string { return strings.TrimSpace(strings.Replace(short(d), "s", " s", 1)) }

func captureTimeline() (string, error) {
	c := &canvas{}
	all, of, total := schedule(capture.Documented(false))
	_, online, _ := schedule(capture.Documented(true))
	const left, right = 190.0, width - 24
	out, back, version := of["cordon"].begin, of["uncordon"].end, of["version"]

	at := func(d time.Duration) float64 { return left + float64(d)/float64(total)*(right-left) }
	c.text(margin, 56, "dim", "start", fmt.Sprintf("The donor is out of service for %s, the whole takes %s: usual durations, as a plan shows them",
		brief(back-out), brief(total.Round(time.Minute))))
	c.axis(at, total, 10*time.Minute, 84, 216)
	y := 92.0
	row := func(name string) {
		y += 25
		c.text(margin, y-11, "head", "start", name)
	}
	row("Donor")
	c.box(left, y-22, right-left, 15, "off soft")
	c.box(at(out), y-22, at(back)-at(out), 15, "base")
	c.text(at(back)+8, y-11, "dim", "start", "in service again, while the copy is worked on")
	row("Donor, --online")
	c.box(left, y-22, right-left, 15, "off soft")
	c.box(at(online["flush"].begin), y-22, 2, 15, "base")
	c.text(at(online["snapshot"].end)+8, y-11, "dim", "start", fmt.Sprintf("in service all the time; its disk is copied after %s", brief(online["snapshot"].begin)))
	row("Copy")
	c.box(at(of["work-disk"].begin), y-22, at(version.begin)-at(of["work-disk"].begin), 15, "node")
	c.text(at(version.begin)+8, y-11, "dim", "start", "the donor's identity is removed on another node")
	row("Azure gallery")
	c.box(at(version.begin), y-22, at(version.end)-at(version.begin), 15, "platform")
	c.text(at(version.begin)+8, y-11, "on", "start", "Azure builds the image version: "+brief(time.Duration(version.Usual)))
	row("Scale set")
	c.box(at(of["model"].begin), y-22, right-at(of["model"].begin), 15, "good")
	c.text(at(of["model"].begin)-8, y-11, "dim", "end", "new nodes come from the image")

	// The first minutes, step by step: below the part of the axis that they are.
	end := version.begin + 15*time.Second
	zoom := func(d time.Duration) float64 { return left + float64(d)/float64(end)*(right-left) }
	const from = 262.0
	fmt.Fprintf(c, `<polygon points="%[1]s,220 %[2]s,220 %[3]s,%[4]s %[1]s,%[4]s" class="off soft"/>`+"\n", number(left), number(at(end)), number(right), number(from-14))
	c.text(margin, from-4, "head", "start", "The first minutes")
	top := c.Len()
	y = from + 2
	for _, lane := range lanes {
		first := true
		for _, s := range all {
			if s.Skip != "" || s.Usual == 0 {
				continue
			}
			if laneOf[s.ID] == "" {
				c.fail("the step %s has no lane: give it one in laneOf", s.ID)
			}
			if laneOf[s.ID] != lane.name || s.begin >= version.begin {
				continue
			}
			if first {
				y += 24
				c.text(margin, y-3, "head", "start", lane.name)
			}
			first = false
			y += 19
			colour := lane.colour
			if lane.name == "Donor" && (s.begin < out || s.end > back) {
				colour = "off"
			}
			c.text(margin+14, y-3, "", "start", s.ID)
			c.box(zoom(s.begin), y-13, zoom(s.end)-zoom(s.begin), 12, colour)
			label := brief(time.Duration(s.Usual))
			if x := zoom(s.end) + 6; x+lengthOf("dim", label) < right {
				c.text(x, y-3, "dim", "start", label)
			} else {
				c.text(zoom(s.begin)-6, y-3, "dim", "end", label)
			}
		}
	}
	rows := c.String()[top:] // the axis and the band lie below them
	head := c.String()[:top]
	c.Reset()
	c.WriteString(head)
	c.box(zoom(out), from+4, zoom(back)-zoom(out), y+2-from, "base faint")
	c.axis(zoom, end, time.Minute, from, y+6)
	c.WriteString(rows)
	c.text((zoom(out)+zoom(back))/2, from+22, "dim", "middle", "out of service: cordoned, drained, stopped, started")
	c.text(margin, y+30, "dim", "start", fmt.Sprintf("Steps that take a moment are left out. After the %s of the version the model is pointed at it (%s).", brief(time.Duration(version.Usual)), brief(time.Duration(of["model"].Usual))))
	return c.picture(y+48, "A capture: minutes for the donor, the rest for its copy",
		fmt.Sprintf("A timeline of usual durations. The donor is drained, stopped, snapshotted and started within %s. A copy of its disk is generalised on another node by %s. "+
			"Azure builds the image version for %s; then the scale set's model is pointed at it. With --online the donor stays in service.",
			brief(back-out), brief(version.begin), brief(time.Duration(version.Usual))))
}

// axis draws lines at round times.
func (c *canvas) axis(at func(time.Duration) float64, end, step time.Duration, top, bottom float64) {
	for d := time.Duration(0); d <= end; d += step {
		c.line(at(d), top+4, at(d), bottom, "line")
		anchor, label := "middle", number(d.Minutes())
		if d == 0 {
			anchor, label = "start", "0 min"
		}
		c.text(at(d), top, "dim", anchor, label)
	}
}

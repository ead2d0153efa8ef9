package draw

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

var (
	//go:embed page.html
	pageTemplate string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
	//go:embed shapes.css
	shapesStyle string
)

// HTML writes a boot as one self-contained page: it makes no requests, which its policy
// also forbids, runs no script but its own, and shows the same without scripts and on
// paper.
func HTML(w io.Writer, t timeline.Timeline) error {
	v := newView(t)
	page, err := template.New("boot").Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	var b bytes.Buffer // half a page is worse than none
	if err := page.Execute(&b, v.page()); err != nil {
		return fmt.Errorf("lay out the page of the boot of %s: %w", v.title(), err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the page of the boot of %s: %w", v.title(), err)
	}
	return nil
}

// htmlPage is what the template is filled with.
type htmlPage struct {
	Policy                                  string
	Style                                   template.CSS
	Script                                  template.JS
	Title, Headline, Total, OriginIs, EndIs string
	Complete                                bool
	Facts                                   []htmlFact
	Shares                                  []htmlShare
	Advice                                  []htmlAdvice
	Alone                                   string
	Steps                                   []htmlStep
	Costs, Missing, Clocks                  []string
	Rows                                    []htmlRow
	Picture                                 template.HTML
	Data                                    pageData
}

type htmlFact struct{ Name, Text, Full string }

type htmlShare struct {
	Class, CSS, Means, Took string
	Percent                 int
	X, W                    float64
}

type htmlAdvice struct{ Word, Saves, Give, Class, What, Do, Unit, Module string }

type htmlStep struct {
	At, Took, Class, CSS, Name string
	Why                        []string
	Wait, Hidden               bool
	X, W                       float64
}

type htmlRow struct{ Source, Indent, Name, From, To, Took, Give, Class, More string }

// pageData is what the page's script draws from. Times are microseconds after
// the kernel's start.
type pageData struct {
	Origin   wire.Micros       `json:"origin"`
	OriginIs string            `json:"originIs"`
	End      wire.Micros       `json:"end"`
	First    wire.Micros       `json:"first"`
	Last     wire.Micros       `json:"last"`
	From     wire.Micros       `json:"from"` // what is seen at first
	To       wire.Micros       `json:"to"`
	Wall     int64             `json:"wall"` // the kernel's start, milliseconds since the epoch; 0: unknown
	Means    map[string]string `json:"means"`
	Groups   []dataGroup       `json:"groups"`
	Path     []dataStep        `json:"path"`
}

type dataGroup struct {
	Source string    `json:"source"`
	Rows   []dataRow `json:"rows"`
}

type dataRow struct {
	ID     string      `json:"id"`
	Name   string      `json:"name"`
	Kind   string      `json:"kind"`
	Parent string      `json:"parent"`
	Start  wire.Micros `json:"start"`
	End    wire.Micros `json:"end"`
	Unc    wire.Micros `json:"unc"`
	Open   bool        `json:"open"`
	After  []string    `json:"after"`
	Result string      `json:"result"`
	Detail string      `json:"detail"`
	Depth  int         `json:"depth"`
	Class  string      `json:"class"`
}

type dataStep struct {
	Name   string      `json:"name"`
	Span   string      `json:"span"`
	Start  wire.Micros `json:"start"`
	End    wire.Micros `json:"end"`
	Class  string      `json:"class"`
	Stage  string      `json:"stage"`
	Wait   bool        `json:"wait"`
	Before string      `json:"before"`
	After  string      `json:"after"`
	Why    []string    `json:"why"`
}

func (v view) page() htmlPage {
	style := pageStyle + shapesStyle
	p := htmlPage{
		Policy: policy(style, pageScript), Style: template.CSS(style), Script: template.JS(pageScript), //nolint:gosec // both are our own files
		Title: v.title(), Headline: v.headline(), Total: Duration(v.Total()), OriginIs: v.OriginIs, EndIs: v.EndIs, Complete: v.Complete,
		Costs: v.costs(), Missing: v.Missing, Picture: template.HTML(picture(v, false)), //nolint:gosec // escaped as it is written
		Data: v.data(),
	}
	fact := func(name, text, full string) {
		if text != "" {
			p.Facts = append(p.Facts, htmlFact{name, text, full})
		}
	}
	if !v.KernelStart.IsZero() {
		at := v.KernelStart.Add(v.Origin.Duration()).UTC().Format("2006-01-02 15:04:05") + "Z"
		fact("began", at, at)
	}
	if v.Idle > 0 {
		fact("idle before", Duration(v.Idle.Duration())+", not counted", "how long the machine had waited in the pool of preprovisioned ones")
	}
	fact("restarted", v.restarted(), "the machine restarted before a boot of it was reported")
	fact("pool", v.Pool, v.Pool)
	fact("image", imageName(v.Image), v.Image)
	fact("tuned by", strings.Join(v.Tuned, ", "), "tunings that the image has, each file as its capture wrote it")
	fact("vm id", v.VMID, v.VMID)
	fact("boot id", v.BootID, v.BootID)

	place := func(from, to wire.Micros) (x, w float64) {
		s := scale{from: v.Origin, to: max(v.End, v.Origin+1), width: 100}
		x = s.at(from)
		return x, max(s.at(to)-x, 0.15)
	}
	var sum, at wire.Micros
	for _, c := range classOrder {
		sum = clamp(sum + v.share[c])
	}
	for _, c := range classOrder {
		d := v.share[c]
		if d <= 0 {
			continue
		}
		s := scale{to: max(sum, 1), width: 100}
		p.Shares = append(p.Shares, htmlShare{Class: string(c), CSS: classOf(c).css(), Means: classMeans(c), Took: Duration(d.Duration()), Percent: percent(d, v.End-v.Origin),
			X: s.at(at), W: s.at(clamp(at+d)) - s.at(at)})
		at = clamp(at + d)
	}
	for _, a := range v.Advice {
		h := htmlAdvice{Word: savesWord(a), Saves: Duration(a.Saves.Duration()), Class: string(a.Class), What: a.What, Do: a.Do, Unit: a.Unit, Module: a.Module}
		if a.Uncertainty > 0 {
			h.Give = Duration(a.Uncertainty.Duration())
		}
		p.Advice = append(p.Advice, h)
	}
	if len(v.Advice) > 1 {
		p.Alone = alone
	}
	for _, s := range v.folded() {
		h := htmlStep{At: took(v.Origin, s.Start), Took: took(s.Start, s.End), Class: string(s.Class), CSS: classOf(s.Class).css(), Name: v.pathName(s), Wait: s.Class == timeline.Waiting}
		h.X, h.W = place(s.Start, s.End)
		if s.Wait != nil && !v.short(s) {
			w := *s.Wait
			h.Hidden, w.Hidden = w.Hidden, false // it has a sign of its own
			h.Why = waitLines(w)
		}
		p.Steps = append(p.Steps, h)
	}
	for _, c := range v.Clocks {
		p.Clocks = append(p.Clocks, clockLine(c))
	}
	for _, g := range v.groups {
		for _, r := range g.rows {
			h := htmlRow{Source: r.Source, Indent: strings.Repeat("\u00a0\u00a0", r.depth), Name: r.Name, From: took(v.Origin, r.Start), To: took(v.Origin, r.End), Took: took(r.Start, r.End), Class: string(r.class)}
			if r.Uncertainty > 0 {
				h.Give = Duration(r.Uncertainty.Duration())
			}
			var more []string
			if r.Open {
				more = append(more, "not ended")
			}
			for _, text := range []string{r.Result, r.Detail} {
				if text != "" {
					more = append(more, text)
				}
			}
			h.More = strings.Join(more, "; ")
			p.Rows = append(p.Rows, h)
		}
	}
	return p
}

func (v view) data() pageData {
	d := pageData{Origin: v.Origin, OriginIs: v.OriginIs, End: v.End, First: v.first, Last: v.last, Means: map[string]string{}, Groups: []dataGroup{}, Path: []dataStep{}}
	d.From, d.To = v.window()
	if !v.KernelStart.IsZero() {
		d.Wall = v.KernelStart.UnixMilli()
	}
	for _, c := range classOrder {
		d.Means[string(c)] = classMeans(c)
	}
	for _, g := range v.groups {
		out := dataGroup{Source: g.source, Rows: []dataRow{}}
		for _, r := range g.rows {
			after := r.After
			if after == nil {
				after = []string{}
			}
			out.Rows = append(out.Rows, dataRow{ID: r.ID, Name: r.Name, Kind: string(r.Kind), Parent: r.Parent, Start: r.Start, End: r.End, Unc: r.Uncertainty, Open: r.Open,
				After: after, Result: r.Result, Detail: r.Detail, Depth: r.depth, Class: string(r.class)})
		}
		d.Groups = append(d.Groups, out)
	}
	for _, s := range v.Path {
		out := dataStep{Name: v.pathName(s), Span: s.Span, Start: s.Start, End: s.End, Class: string(s.Class), Stage: string(s.Stage), Why: []string{}}
		if s.Wait != nil {
			out.Wait, out.Before, out.After, out.Why = true, s.Wait.Before, s.Wait.After, waitLines(*s.Wait)
		}
		d.Path = append(d.Path, out)
	}
	return d
}

// policy is the page's Content-Security-Policy: its own style and script, which
// are known by their hashes, and nothing else from anywhere.
func policy(style, script string) string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	if script != "" {
		script = "; script-src " + hash(script)
	}
	return "default-src 'none'; style-src " + hash(style) + script + "; base-uri 'none'; form-action 'none'"
}

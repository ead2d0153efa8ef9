package draw

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"
	"google.golang.org/protobuf/proto"

	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

// The browser's tests are a module of their own and have the pages written by
// this: go test -run ^TestPages -pages=DIR.
var pages = flag.String("pages", "", "write the samples' pages and pictures into this folder")

func TestPages(t *testing.T) {
	all := samples(t)
	all["large"] = large(400)
	for name, sample := range all {
		page, picture := checkPage(t, sample), checkPicture(t, sample)
		if *pages == "" {
			continue
		}
		for ext, text := range map[string][]byte{".html": page, ".svg": picture} {
			if err := os.WriteFile(filepath.Join(*pages, name+ext), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// allowed are the elements of a page and of a picture. Of attributes none may
// run or load anything.
const allowed = ` html head meta title style body main header div h1 h2 p button small section span ul ol li i b dl dt dd input output kbd figure strong code table thead tbody tr th td script svg defs pattern rect path line text `

func element(t testing.TB, name string) {
	t.Helper()
	if !strings.Contains(allowed, " "+name+" ") {
		t.Errorf("<%s> is none of the template", name)
	}
}

func harmless(t testing.TB, element, name, value string) {
	t.Helper()
	if strings.HasPrefix(name, "on") || name == "href" || name == "src" || name == "style" || name == "srcset" || name == "action" {
		t.Errorf("<%s %s=%q>", element, name, value)
	}
}

// checkPage writes a page and looks whether it is made of what the template has,
// with what its policy allows.
func checkPage(t testing.TB, of timeline.Timeline) []byte {
	t.Helper()
	var page bytes.Buffer
	if err := HTML(&page, of); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(bytes.NewReader(page.Bytes()))
	if err != nil || !utf8.Valid(page.Bytes()) {
		t.Fatalf("it is no page: %v", err)
	}
	var policyIs string
	var scripts, styles []string
	for n := range root.Descendants() {
		switch n.Type {
		case html.CommentNode:
			t.Errorf("a comment: %q", n.Data)
		case html.ElementNode:
			element(t, n.Data)
			kind := ""
			for _, a := range n.Attr {
				harmless(t, n.Data, a.Key, a.Val)
				switch {
				case a.Key == "content" && strings.HasPrefix(a.Val, "default-src"):
					policyIs = a.Val
				case n.Data == "script" && a.Key == "type":
					kind = a.Val
				}
			}
			switch {
			case n.Data == "style":
				styles = append(styles, n.FirstChild.Data)
			case n.Data == "script" && kind == "application/json":
				var data pageData
				d := json.NewDecoder(strings.NewReader(n.FirstChild.Data))
				d.DisallowUnknownFields()
				if err := d.Decode(&data); err != nil {
					t.Errorf("the page's data: %v", err)
				}
				rows := 0
				for _, g := range data.Groups {
					rows += len(g.Rows)
				}
				if rows != len(of.Spans) || len(data.Path) != len(of.Path) {
					t.Errorf("the page has %d spans of %d, and %d steps of %d", rows, len(of.Spans), len(data.Path), len(of.Path))
				}
			case n.Data == "script":
				scripts = append(scripts, n.FirstChild.Data)
			}
		}
	}
	if len(scripts) != 1 || len(styles) != 1 || policyIs != policy(styles[0], scripts[0]) {
		t.Errorf("%d scripts and %d styles, and the policy is %s", len(scripts), len(styles), policyIs)
	}
	return page.Bytes()
}

func checkPicture(t testing.TB, of timeline.Timeline) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := SVG(&b, of); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return b.Bytes()
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			element(t, token.Name.Local)
			for _, a := range token.Attr {
				harmless(t, token.Name.Local, a.Name.Local, a.Value)
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("<%s %s=%q>", token.Name.Local, a.Name.Local, a.Value)
				}
			}
		case xml.Comment, xml.ProcInst, xml.Directive:
			t.Errorf("the picture holds %T", token)
		}
	}
}

// checkDiff writes the page of two boots and looks whether it is made of what the
// template has.
func checkDiff(t testing.TB, name string, a, b timeline.Timeline) []byte {
	t.Helper()
	d := timeline.Diff([]timeline.Timeline{a}, []timeline.Timeline{b})
	d.Notes = append(d.Notes, name)
	var out bytes.Buffer
	if err := DiffHTML(&out, Side{name, a}, Side{"k3s", b}, d); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		element(t, n.Data)
		if n.Data == "script" {
			t.Error("it has a script")
		}
		for _, a := range n.Attr {
			harmless(t, n.Data, a.Key, a.Val)
		}
	}
	return out.Bytes()
}

func TestPagesOfTwo(t *testing.T) {
	h := hostile(t)
	checkDiff(t, h.Node, h, k3s(t))
	checkDiff(t, h.Node, k3s(t), h)
	page := checkDiff(t, "generic", aks(t), k3s(t))
	for _, words := range []string{"generic against k3s", "1m19.703s against 15.300s: the second is faster by 1m04.403s (81%)", "-12.410s", "cloud-init final", "1 and 1 boots are too few"} {
		if !bytes.Contains(page, []byte(words)) {
			t.Errorf("it does not say %q", words)
		}
	}
	if *pages != "" {
		if err := os.WriteFile(filepath.Join(*pages, "diff.html"), page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever words and times there are, what is drawn is text.
func FuzzDraw(f *testing.F) {
	h := hostile(f)
	f.Add(h.Node, "kubelet.service", int64(0), int64(1_000_000), int64(5), uint8(3))
	f.Add("\x1b[31m", "a\u202eb", int64(-1<<63), int64(1<<63-1), int64(1<<62), uint8(0))
	f.Add("</script><svg onload=x>", "]]>", int64(1), int64(0), int64(-1), uint8(255))
	f.Add("漢字😀", "\u0301\ufe0f", int64(1), int64(1), int64(1), uint8(80))
	f.Fuzz(func(t *testing.T, word, other string, a, b, c int64, n uint8) {
		m := func(i int64) wire.Micros { return wire.Micros(i) }
		of := timeline.Timeline{
			Version: 1, Node: word, Pool: other, Image: "/galleries/" + word + "/images/" + other + "/versions/" + word, VMID: other, BootID: word, KernelStart: time.Unix(1_795_000_000, c).UTC(),
			Origin: m(a), OriginIs: other, Idle: m(c), End: m(b), EndIs: word, Complete: n%2 == 0,
			Spans: []timeline.Span{
				{ID: word, Name: other, Source: word, Kind: timeline.Kind(other), Parent: other, Start: m(a), End: m(b), Uncertainty: m(c), Open: n%3 == 0, After: []string{word, other}, Result: other, Detail: word},
				{ID: other, Name: word, Source: other, Kind: timeline.KindStage, Parent: word, Start: m(b), End: m(c), After: []string{word}},
				{ID: "c", Source: word, Kind: timeline.KindMoment, Parent: word, Start: m(c), End: m(a)},
			},
			Path: []timeline.Step{
				{Span: word, Name: word, Start: m(a), End: m(c), Class: timeline.Class(other), Stage: timeline.Stage(word)},
				{Name: other, Start: m(c), End: m(b), Class: timeline.Waiting, Wait: &timeline.Wait{Before: word, After: other, Cause: other, Evidence: word, Hidden: true}},
				{Span: other, Start: m(b), End: m(a), Class: timeline.Base, Stage: timeline.StageKernel},
			},
			Advice:  []timeline.Advice{{Class: timeline.Class(word), Spans: []string{word}, Saves: m(c), Uncertainty: m(a), What: word, Do: other, Unit: word, Module: other}},
			Clocks:  []timeline.Clock{{Kind: wire.ClockKind(word), Offset: m(a), Uncertainty: m(b), How: other, Steps: []timeline.ClockStep{{At: m(b), By: m(c)}}}},
			Missing: []string{word, other},
		}
		for _, color := range []bool{false, true} {
			checkText(t, word, of, Terminal{Width: int(n), Color: color, ASCII: n%5 == 0})
		}
		checkPage(t, of)
		checkPicture(t, of)
		checkDiff(t, word, of, of)
		trace, err := Trace(of, map[string]string{"x": word})
		if err == nil {
			_, err = proto.Marshal(trace)
		}
		if err != nil && !strings.Contains(err.Error(), "the node's clock was not set") {
			t.Error(err)
		}
	})
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 412 * time.Microsecond: "412µs", 78 * time.Millisecond: "78ms", 2286 * time.Millisecond: "2.286s", 999_600 * time.Microsecond: "1.000s", 59_999_600 * time.Microsecond: "1m00.000s",
		16*time.Minute + 40*time.Second + 410*time.Millisecond: "16m40.410s", time.Hour + 2*time.Minute + 3*time.Second: "1h02m03s", 124 * time.Hour: "5d04h",
		-90 * time.Second: "-1m30.000s", -1 << 63: "-106751d23h", 500: "0µs",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%d is %s, not %s", d, got, want)
		}
	}
}

func BenchmarkHTML(b *testing.B) {
	of := large(400)
	for b.Loop() {
		if err := HTML(io.Discard, of); err != nil {
			b.Fatal(err)
		}
	}
}

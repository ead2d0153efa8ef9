package browser

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// box is where something is on the screen.
type box struct{ X, Y, W, H float64 }

func (b *tab) box(expression string) box {
	b.Helper()
	return eval[box](b, `(e => { const r = (e).getBoundingClientRect(); return {X: r.x, Y: r.y, W: r.width, H: r.height} })(`+expression+`)`)
}

// bar is the bar of the row of that name.
func bar(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('.row')].find(r => r.querySelector('.name').textContent.startsWith(%q)).querySelector('.bar')`, name)
}

func (b *tab) wheel(x, y, by float64, keys kb.Modifier) {
	b.Helper()
	// DeltaX has to be given, and is left out where it is 0.
	b.do(call(input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseWheel, X: x, Y: y, DeltaX: 0.01, DeltaY: by, Modifiers: int64(keys)}))
	b.settled()
}

func (b *tab) key(keys string) {
	b.Helper()
	b.do(chromedp.KeyEvent(keys))
	b.settled()
}

// Each page is drawn, without an error, a dialog or a request; so is each picture.
func TestDrawn(t *testing.T) {
	open := browse(t)
	for name, rows := range map[string]int{"aks": 71, "k3s": 12, "preprovisioned": 16, "partial": 3, "hostile": 5, "empty": 0, "large": 400} {
		t.Run(name, func(t *testing.T) {
			b := open(t, name+".html")
			b.settled()
			if got := eval[int](b, `document.querySelectorAll('.row').length`); got != rows {
				t.Errorf("%d rows, not %d", got, rows)
			}
			if got := eval[int](b, `document.querySelectorAll('#all tbody tr').length`); got != rows {
				t.Errorf("%d rows in the table, not %d", got, rows)
			}
			if got := eval[int](b, `document.querySelectorAll('.chart, .total, #h-path').length`); got != 3 {
				t.Errorf("%d of the page's 3 parts", got)
			}
			if eval[bool](b, `document.documentElement.scrollWidth > innerWidth`) {
				t.Error("the page is wider than the window")
			}
			b.do(chromedp.EmulateViewport(390, 800))
			b.settled()
			if eval[bool](b, `document.documentElement.scrollWidth > innerWidth`) {
				t.Errorf("the page is %d wide on a telephone", eval[int](b, `document.documentElement.scrollWidth`))
			}
			picture := open(t, name+".svg")
			if got := eval[string](picture, `document.documentElement.tagName + document.querySelectorAll('parsererror').length`); got != "svg0" {
				t.Errorf("the picture is %s", got)
			}
		})
	}
}

// The page of two boots, which has no script.
func TestDiff(t *testing.T) {
	b := browse(t)(t, "diff.html")
	widths := eval[[]float64](b, `[...document.querySelectorAll('.both rect[class^="c-"]')].map(r => r.getBoundingClientRect().right)`)
	if len(widths) < 60 {
		t.Errorf("%d steps of two paths", len(widths))
	}
	if n := eval[int](b, `document.querySelectorAll('table').length`); n != 2 {
		t.Errorf("%d tables", n)
	}
	b.do(chromedp.EmulateViewport(390, 800))
	if eval[bool](b, `document.documentElement.scrollWidth > innerWidth`) {
		t.Error("the page is wider than a telephone")
	}
}

// What the script writes is what the program writes, and what is long is long.
func TestBarsTell(t *testing.T) {
	b := browse(t)(t, "aks.html")
	b.settled()
	type row struct{ Name, Script, Program string }
	for _, r := range eval[[]row](b, `(() => {
		const table = [...document.querySelectorAll('#all tbody tr')];
		return [...document.querySelectorAll('.row')].map((r, i) => ({Name: r.querySelector('.name').textContent, Script: r.querySelector('.t').textContent,
			Program: r.querySelector('.moment') ? 'at ' + table[i].cells[2].textContent : table[i].cells[4].textContent}));
	})()`) {
		if r.Script != r.Program {
			t.Errorf("%s: the script says %s, the program %s", r.Name, r.Script, r.Program)
		}
	}
	kernel, install := b.box(bar("kernel")), b.box(bar("package-update"))
	if got, want := install.W/kernel.W, 10592.4/1842.113; math.Abs(got/want-1) > 0.03 {
		t.Errorf("one is %.2f times the other, not %.2f", got, want)
	}
	colour := func(name string) string { return eval[string](b, `getComputedStyle(`+bar(name)+`).backgroundColor`) }
	if colour("package-update") == colour("kernel") || colour("kernel") == colour("hv-kvp") {
		t.Error("base, platform and what is not on the path look alike")
	}
	if n := eval[int](b, `document.querySelectorAll('.gridlines b').length`); n < 10 {
		t.Errorf("%d waits are hatched", n)
	}
}

func TestZoom(t *testing.T) {
	b := browse(t)(t, "aks.html")
	b.settled()
	install := func() box { return b.box(bar("package-update")) }
	first := install()
	axis := b.box(`document.querySelector('.axis')`)
	y := b.box(`document.querySelector('.pathlane')`).Y + 10
	near := func(what string, got, want, by float64) {
		t.Helper()
		if math.Abs(got-want) > by {
			t.Errorf("%s: %.1f, not %.1f", what, got, want)
		}
	}

	// The wheel over the path: what is under the pointer stays there.
	b.wheel(first.X, y, -300, 0)
	zoomed := install()
	if zoomed.W < first.W*1.2 {
		t.Errorf("the wheel made %.1f of %.1f", zoomed.W, first.W)
	}
	near("what was under the pointer", zoomed.X, first.X, 2)
	b.wheel(first.X, y, 300, 0)
	near("zoomed out again", install().W, first.W, 1)

	// Over the rows it scrolls, and zooms with Ctrl, as a pinch on a touchpad does.
	row := b.box(bar("kernel"))
	b.wheel(first.X, row.Y+2, -120, kb.ModifierCtrl)
	if install().W <= first.W {
		t.Error("Ctrl and the wheel do nothing")
	}
	at := install()
	b.wheel(first.X, b.box(bar("kernel")).Y+2, 120, 0)
	near("the wheel alone", install().W, at.W, 0.5)
	// Chromium scrolls on its own thread, and the page may see it later.
	if eval[float64](b, `new Promise(seen => { let left = 500; (function look() { scrollY || !left-- ? seen(scrollY) : setTimeout(look, 20) })() })`) == 0 {
		t.Error("the wheel alone does not scroll")
	}

	// Keys.
	b.script(`scrollTo(0, 0); document.body.focus()`)
	b.key("0")
	near("0", install().W, first.W, 0.5)
	b.key("+")
	b.key("+")
	if got := install().W; got < first.W*2 {
		t.Errorf("+ twice made %.1f of %.1f", got, first.W)
	}
	before := install()
	b.key(kb.ArrowRight)
	if got := install(); got.X >= before.X {
		t.Error("the right arrow does not move to the right")
	}
	b.key(kb.ArrowLeft)
	near("left again", install().X, before.X, 1)
	b.key("-")
	b.key("0")
	near("0", install().X, first.X, 1)

	// Buttons, and the picture's own limits.
	b.do(chromedp.Click(chromedp.CSS("#in")))
	b.settled()
	near("the button", install().W, first.W*2, 2)
	for range 40 {
		b.script(`document.getElementById('in').click()`)
	}
	b.settled()
	if !eval[bool](b, `document.getElementById('in').disabled`) {
		t.Error("one can zoom in without an end")
	}
	b.do(chromedp.Click(chromedp.CSS("#fit")))
	b.settled()
	near("the whole boot", install().W, first.W, 0.5)

	// Dragging moves; a drag is no click.
	b.do(chromedp.Click(chromedp.CSS("#in")))
	b.settled()
	before = install()
	x, dy := axis.X+axis.W/2, b.box(`document.querySelector('.axis')`).Y+10
	b.do(chromedp.MouseEvent(chromedp.MousePressed, x, dy, chromedp.ButtonLeft), chromedp.MouseEvent(chromedp.MouseMoved, x-50, dy, chromedp.ButtonLeft),
		chromedp.MouseEvent(chromedp.MouseMoved, x-120, dy, chromedp.ButtonLeft), chromedp.MouseEvent(chromedp.MouseReleased, x-120, dy, chromedp.ButtonLeft))
	b.settled()
	near("dragged", install().X, before.X-120, 2)
	if !eval[bool](b, `document.querySelector('.panel').hidden`) {
		t.Error("a drag was taken for a click")
	}
}

func touch(kind input.DispatchTouchEventType, points []*input.TouchPoint) step {
	return call(input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: kind, TouchPoints: points})
}

// Two fingers.
func TestPinch(t *testing.T) {
	b := browse(t)(t, "aks.html", call(emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true, MaxTouchPoints: 2}))
	b.settled()
	before := b.box(bar("package-update"))
	lane := b.box(`document.querySelector('.pathlane')`)
	y, middle := lane.Y+15, lane.X+lane.W/2
	fingers := func(apart float64) []*input.TouchPoint {
		return []*input.TouchPoint{{X: middle - apart, Y: y, ID: new(1.0)}, {X: middle + apart, Y: y, ID: new(2.0)}}
	}
	b.do(touch(input.DispatchTouchEventTypeTouchStart, fingers(60)))
	for apart := 70.0; apart <= 180; apart += 10 {
		b.do(touch(input.DispatchTouchEventTypeTouchMove, fingers(apart)))
	}
	b.do(touch(input.DispatchTouchEventTypeTouchEnd, []*input.TouchPoint{}))
	b.settled()
	if got := b.box(bar("package-update")); got.W < before.W*2 || got.W > before.W*4 {
		t.Errorf("spread to three times as far, it is %.1f of %.1f", got.W, before.W)
	}
}

func TestDetails(t *testing.T) {
	b := browse(t)(t, "aks.html")
	b.settled()
	panel := func() string {
		return eval[string](b, `document.querySelector('.panel').hidden ? '' : document.querySelector('.panel').innerText`)
	}
	has := func(text string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !bytes.Contains([]byte(text), []byte(w)) {
				t.Errorf("%q is not in %q", w, text)
			}
		}
	}
	at := b.box(`document.querySelectorAll('.pathlane button.k-wait')[3]`)
	for _, i := range eval[[]int](b, `[...document.querySelectorAll('.pathlane button')].map((b, i) => b.getAttribute('aria-label').includes('cloud-init.service') && b.className.includes('wait') ? i : -1).filter(i => i >= 0)`) {
		at = b.box(fmt.Sprintf(`document.querySelectorAll('.pathlane button')[%d]`, i))
	}
	b.do(chromedp.MouseEvent(chromedp.MouseMoved, at.X+at.W/2, at.Y+8))
	b.settled()
	has(eval[string](b, `document.querySelector('.tip').hidden ? '' : document.querySelector('.tip').innerText`), "before cloud-init.service", "3.019s", "another unit's job", "systemd-analyze critical-chain does not show it")
	b.do(chromedp.MouseClickXY(at.X+at.W/2, at.Y+8))
	b.settled()
	has(panel(), "before cloud-init.service", "nothing on the path ran", "cloud-init.service")
	b.key(kb.Escape)
	if panel() != "" {
		t.Error("Escape does not close the details")
	}

	// By keys alone: search, go there, go on.
	b.key("/")
	b.do(chromedp.KeyEvent("kubelet.service"))
	b.settled()
	if got := eval[string](b, `document.getElementById('found').textContent`); got != "1 span" {
		t.Errorf("found %q", got)
	}
	if n := eval[int](b, `document.querySelectorAll('.row.no').length`); n != 70 {
		t.Errorf("%d rows are not what was searched for", n)
	}
	b.key(kb.Enter)
	has(panel(), "kubelet.service", "68ms", "not on the critical path", "containerd.service", "2026-11-21 09:13:11")
	if n := eval[int](b, `document.querySelectorAll('.row.dep').length`); n != 1 {
		t.Errorf("%d rows are told to be before it", n)
	}
	b.key(kb.Escape)
	b.script(`document.querySelector('.row.sel').focus()`)
	b.key(kb.ArrowUp)
	has(panel(), "cloud-final.service", "11.703s")

	// Collapsed, filtered.
	b.do(chromedp.Click(chromedp.CSS("#show-path")))
	b.settled()
	if n := eval[int](b, `[...document.querySelectorAll('.row')].filter(r => r.offsetHeight && !r.classList.contains('on')).length`); n != 0 {
		t.Errorf("%d rows that are not on the path", n)
	}
	b.do(chromedp.Click(chromedp.CSS("#show-all")), chromedp.Click(chromedp.CSS("#fold")))
	b.settled()
	if n := eval[int](b, `[...document.querySelectorAll('.row')].filter(r => r.offsetHeight).length`); n != 0 {
		t.Errorf("%d rows of collapsed sources", n)
	}
	b.do(chromedp.Click(chromedp.CSS("#table")))
	if eval[float64](b, `document.querySelector('#all table').offsetHeight`) == 0 {
		t.Error("the table is not shown")
	}
}

// What lies before a preprovisioned machine's origin is seen on request only.
func TestIdle(t *testing.T) {
	b := browse(t)(t, "preprovisioned.html")
	b.settled()
	before := b.box(bar("cloud-init.service"))
	b.do(chromedp.Click(chromedp.CSS("#idle")))
	b.settled()
	if got := b.box(bar("cloud-init.service")); got.W >= before.W/20 {
		t.Errorf("with 16 minutes before it, it is as wide as %.1f, and was %.1f", got.W, before.W)
	}
	b.do(chromedp.Click(chromedp.CSS("#idle")))
	b.settled()
	if got := b.box(bar("cloud-init.service")); math.Abs(got.W-before.W) > 0.5 {
		t.Errorf("%.1f is not %.1f", got.W, before.W)
	}
}

func prefer(what string) step {
	return call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: what}}})
}

func background(b *tab) string {
	return eval[string](b, `getComputedStyle(document.body).backgroundColor`)
}

func TestLightAndDark(t *testing.T) {
	open := browse(t)
	light, dark := open(t, "aks.html", prefer("light")), open(t, "aks.html", prefer("dark"))
	l, d := background(light), background(dark)
	if l == d {
		t.Errorf("both are %s", l)
	}
	for _, c := range []struct {
		b    *tab
		want string
	}{{light, d}, {light, l}, {dark, l}, {dark, d}} {
		c.b.do(chromedp.Click(chromedp.CSS("#theme")))
		if got := background(c.b); got != c.want {
			t.Errorf("switched, it is %s, not %s", got, c.want)
		}
	}
	// Words can be read: 4.5 to 1 by WCAG, for the ink and the dim ink.
	for name, b := range map[string]*tab{"light": light, "dark": dark} {
		for _, on := range []string{".sub", "h1", ".row .name", ".t", "th"} {
			if r := eval[float64](b, `(() => {
				const rgb = c => { const x = document.createElement('canvas').getContext('2d'); x.fillStyle = c; x.fillRect(0, 0, 1, 1); return [...x.getImageData(0, 0, 1, 1).data].slice(0, 3); };
				const lum = c => { const [r, g, b] = rgb(c).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
				const a = lum(getComputedStyle(document.querySelector('`+on+`')).color), z = lum(getComputedStyle(document.querySelector('.card')).backgroundColor);
				return (Math.max(a, z) + .05) / (Math.min(a, z) + .05);
			})()`); r < 4.5 {
				t.Errorf("%s: %s has a contrast of %.1f", name, on, r)
			}
		}
	}
}

func TestPrints(t *testing.T) {
	b := browse(t)(t, "aks.html")
	b.settled()
	b.do(call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"}))
	for selector, shown := range map[string]bool{".static svg": true, "#all table": true, ".chart": false, ".tools": false, "#theme": false, "#table": false} {
		if got := eval[bool](b, `document.querySelector('`+selector+`').getClientRects().length > 0`); got != shown {
			t.Errorf("%s is on paper: %v", selector, got)
		}
	}
	pdf := run(b, func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		printed, err := cdp.Call(ctx, t, page.PrintToPDF, page.PrintToPDFParams{PrintBackground: new(true), PreferCSSPageSize: new(true)})
		return printed.Data, err
	})
	if !bytes.HasPrefix(pdf, []byte("%PDF-")) || bytes.Count(pdf, []byte("/Type /Page\n")) < 2 {
		t.Errorf("%d bytes, %d pages", len(pdf), bytes.Count(pdf, []byte("/Type /Page\n")))
	}
}

// Without scripts the page says the same.
func TestNoScript(t *testing.T) {
	b := browse(t)(t, "aks.html", call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	for selector, shown := range map[string]bool{".static svg": true, "#all table": true, ".tools": false, "#theme": false, "#table": false} {
		if got := eval[bool](b, `document.querySelector('`+selector+`').getClientRects().length > 0`); got != shown {
			t.Errorf("%s is shown: %v", selector, got)
		}
	}
}

// Whoever cannot see it is told what there is: what can be reached has a name.
func TestNamed(t *testing.T) {
	b := browse(t)(t, "aks.html")
	b.settled()
	nodes := run(b, func(ctx context.Context, t *chromedp.Target) ([]*accessibility.Node, error) {
		tree, err := cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		return tree.Nodes, err
	})
	count := map[string]int{}
	for _, n := range nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role := string(bytes.Trim(n.Role.Value, `"`))
		focusable := slices.ContainsFunc(n.Properties, func(p *accessibility.Property) bool {
			return p.Name == accessibility.PropertyNameFocusable && string(p.Value.Value) == "true"
		})
		named := n.Name != nil && len(bytes.Trim(n.Name.Value, `" `)) > 0
		if (focusable || role == "button" || role == "image" || role == "region") && !named && role != "RootWebArea" {
			t.Errorf("a %s has no name", role)
		}
		count[role]++
	}
	if count["listitem"] < 71 || count["row"] < 20 || count["button"] < 50 || count["image"]+count["img"] < 1 {
		t.Errorf("what is told: %v", count)
	}
}

// Only what can be seen is placed, so that a machine of 400 units is as quick as
// one of 60.
func TestLarge(t *testing.T) {
	b := browse(t)(t, "large.html", chromedp.EmulateViewport(1400, 1000))
	b.settled()
	b.settled()
	moved := `(() => {
		const left = () => [...document.querySelectorAll('.bar')].map(e => e.style.left + e.style.width);
		window.before = left();
		document.getElementById('in').click();
		return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(left().filter((l, i) => l !== window.before[i]).length))));
	})()`
	if n := eval[int](b, moved); n < 10 || n > 200 {
		t.Errorf("%d bars of 400 were placed anew", n)
	}
	ms := eval[float64](b, `new Promise(done => {
		const begun = performance.now();
		let n = 0;
		const step = () => {
			if (n++ === 60) { done((performance.now() - begun) / 60); return; }
			document.getElementById(n % 2 ? 'in' : 'out').click();
			requestAnimationFrame(step);
		};
		requestAnimationFrame(step);
	})`)
	t.Logf("a frame of 400 units takes %.1f ms here", ms)
}

// The pictures in the docs.
func TestScreenshots(t *testing.T) {
	if !*update {
		t.Log("docs/img is written by -update only")
		return
	}
	open := browse(t)
	dir := filepath.Join(root, "docs", "img")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	shoot := func(b *tab, name string) {
		t.Helper()
		b.settled()
		png := run(b, chromedp.CaptureScreenshot())
		if err := os.WriteFile(filepath.Join(dir, name), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, "aks.html", prefer("light"), chromedp.EmulateViewport(1280, 1120))
	shoot(b, "boot-light.png")
	b = open(t, "aks.html", prefer("dark"), chromedp.EmulateViewport(1280, 900))
	b.settled()
	b.script(`document.getElementById('show-path').click(); document.getElementById('h-chart').scrollIntoView()`)
	b.settled()
	lane := b.box(`document.querySelector('.pathlane')`)
	b.wheel(lane.X+lane.W*0.62, lane.Y+10, -300, 0)
	b.wheel(lane.X+lane.W*0.62, lane.Y+10, -300, 0)
	b.script(`[...document.querySelectorAll('.pathlane button')].find(b => b.getAttribute('aria-label').includes("agent's next look")).click()`)
	shoot(b, "boot-dark.png")
	shoot(open(t, "diff.html", prefer("light"), chromedp.EmulateViewport(1280, 900)), "boot-diff.png")
}

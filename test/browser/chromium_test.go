package browser

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"
)

var update = flag.Bool("update", false, "write the screenshots in docs/img")

// root is the module around this one.
const root = "../.."

// limit is what all of a test may take.
const limit = 5 * time.Minute

// chromium starts a browser of its own and returns its address.
func chromium(t *testing.T) string {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("the pages are NOT looked at in a browser here: there is no chromium (Debian: apt-get install chromium)")
	}
	// It writes there until its last process is gone, so the folder goes after.
	profile, err := os.MkdirTemp("", "ortet-browser-")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--headless", "--remote-debugging-port=0", "--user-data-dir=" + profile, "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--disable-dev-shm-usage", "--disable-breakpad", "--hide-scrollbars",
		"--force-color-profile=srgb", "--lang=en", "about:blank"}
	if os.Geteuid() == 0 {
		args = append([]string{"--no-sandbox"}, args...)
	}
	cmd := exec.Command(program, args...)
	// A group of its own, so that its children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	ready, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		var said strings.Builder
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if _, url, ok := strings.Cut(lines.Text(), "DevTools listening on "); ok {
				ready <- url
				_, _ = io.Copy(io.Discard, stderr) // until it ends
				return
			}
			said.WriteString(lines.Text() + "\n")
		}
		fmt.Fprint(os.Stderr, said.String())
		ready <- "" // who waits need not wait longer
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
		}
		if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("end the browser: %v", err)
		}
		select {
		case <-ended: // all of them, and nothing is written to the profile
		case <-time.After(time.Minute):
		}
		_ = cmd.Wait() // it was killed
		if err := os.RemoveAll(profile); err != nil {
			t.Error(err)
		}
	})
	select {
	case url := <-ready:
		if url == "" {
			t.Fatal("the browser ended at once")
		}
		return url
	case <-time.After(time.Minute):
		t.Fatal("the browser does not come up")
		return ""
	}
}

var written struct {
	sync.Once
	dir string
	err error
}

// written by the tests of internal/boots/timeline/draw, once.
func pages(t *testing.T) string {
	t.Helper()
	written.Do(func() {
		if written.dir, written.err = os.MkdirTemp("", "ortet-pages-"); written.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "go", "test", "./internal/boots/timeline/draw", "-count=1", "-run", "^TestPages", "-pages="+written.dir)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			written.err = fmt.Errorf("write the pages: %w\n%s", err, out)
		}
	})
	if written.err != nil {
		t.Fatal(written.err)
	}
	return written.dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	if written.dir != "" {
		if err := os.RemoveAll(written.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(code)
}

// tab is a page that is open.
type tab struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string
	wrong    []string
}

// step is something that is done with a page.
type step = chromedp.Action[chromedp.Void]

// call is a command of the browser's protocol.
func call[P, R any](command cdp.Command[P, R], with P) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, with)
		return err
	})
}

// browse starts a browser and gives a way of opening files in it.
func browse(t *testing.T) func(t *testing.T, file string, before ...step) *tab {
	t.Helper()
	url := chromium(t)
	dir := pages(t)
	all, cancelAll := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancelAll)
	allocator, cancelRemote := remote.NewAllocator(all, url, remote.NoModifyURL)
	t.Cleanup(cancelRemote)
	return func(t *testing.T, file string, before ...step) *tab {
		t.Helper()
		ctx, cancel := chromedp.NewContext(allocator)
		t.Cleanup(cancel)
		b := &tab{T: t, ctx: ctx}
		if err := chromedp.Listen(ctx, b.heard); err != nil {
			t.Fatal(err)
		}
		b.do(append([]step{call(network.Enable, network.EnableParams{}), call(page.Enable, page.EnableParams{}), call(runtime.Enable, cdp.Empty{}), chromedp.EmulateViewport(1400, 2600)}, before...)...)
		b.do(chromedp.Navigate("file://" + filepath.Join(dir, file)))
		// Nothing may be asked for, and nothing go wrong, until the test is over.
		t.Cleanup(func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.requests) != 1 {
				t.Errorf("%s asked for %q", file, b.requests)
			}
			for _, w := range b.wrong {
				t.Errorf("%s: %s", file, w)
			}
		})
		return b
	}
}

// heard notes what a page must not do.
func (b *tab) heard(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *network.EventWebSocketCreated:
		b.requests = append(b.requests, e.URL)
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, fmt.Sprintf("exception: %s at line %d", e.ExceptionDetails.Text, e.ExceptionDetails.LineNumber))
	case *runtime.EventConsoleAPICalled:
		b.wrong = append(b.wrong, fmt.Sprintf("console.%s", e.Type))
	case *page.EventJavascriptDialogOpening:
		b.wrong = append(b.wrong, "dialog: "+e.Message)
		go func() {
			_ = chromedp.Do(b.ctx, call(page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true}))
		}() // else it hangs
	}
}

func (b *tab) do(steps ...step) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// run does a step that gives something.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.Helper()
	out, err := chromedp.Run(b.ctx, action)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// eval returns an expression's value, or what it promises.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	return run(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// script runs what has no value.
func (b *tab) script(text string) {
	b.Helper()
	eval[bool](b, "(() => { "+text+"; return true })()")
}

// settled waits until what was asked for has been drawn.
func (b *tab) settled() {
	b.Helper()
	eval[bool](b, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => done(true)))))`)
}

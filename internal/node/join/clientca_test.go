package join

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/node/tree"
)

// Whose clients a kubelet lets in is for its cluster to say: what is left of another
// one is replaced, and kept beside.
func TestTheClientCAIsTheClusters(t *testing.T) {
	other := string(newAuthority(t, "another cluster's").pem())
	for name, c := range map[string]struct {
		there        func(own string) string
		stays, warns bool
	}{
		"there is none":                {func(string) string { return "" }, false, false},
		"it is the cluster's":          {func(own string) string { return "# ours\n" + own }, true, false},
		"it is another cluster's":      {func(string) string { return other }, false, true},
		"it is nobody's":               {func(string) string { return "a power cut left this" }, false, true},
		"it holds ours among others":   {func(own string) string { return other + own }, true, true},
		"it holds ours more than once": {func(own string) string { return own + own }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			own := string(w.ca.pem())
			there := c.there(own)
			if there != "" {
				w.write(clientCA, there)
				if err := os.Chmod(w.path(clientCA), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			w.mustJoin()
			want := own
			if c.stays {
				want = there
			}
			if got := w.read(clientCA); got != want {
				t.Errorf("it is %q, want %q", got, want)
			}
			if warned := strings.Contains(w.said(), `level=WARN msg="the kubelet`); warned != c.warns {
				t.Errorf("warned: %v\n%s", warned, w.said())
			}
			if there == "" {
				return
			}
			if info, err := os.Stat(w.path(clientCA)); err != nil || info.Mode().Perm() != 0o644 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			if kept := w.read(clientCA + formerCA); c.stays != (kept == "") || !c.stays && kept != there {
				t.Errorf("kept beside: %q", kept)
			}
		})
	}
}

// A cluster that says its CA twice has it none the less: nothing is replaced, nor is
// what is kept beside.
func TestTheClientCAIsGrantedTwice(t *testing.T) {
	w := newWorld(t)
	own := string(w.ca.pem())
	w.write(clientCA, own)
	w.write(clientCA+formerCA, "another cluster's")
	at, err := tree.Open(w.root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = at.Close() }()
	c := &Client{settings: Settings{Kubelet: KubeletPaths{ClientCA: clientCA}}, options: Options{Log: slog.New(slog.DiscardHandler)}}
	if err := c.writeClientCA(at, []byte(own+own)); err != nil || w.read(clientCA) != own || w.read(clientCA+formerCA) != "another cluster's" {
		t.Errorf("%v; it is %q, and beside %q", err, w.read(clientCA), w.read(clientCA+formerCA))
	}
}

package join

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// With nobody there it waits, says why once for each cause, and joins when all are
// back.
func TestJoinAsksForAsLongAsItTakes(t *testing.T) {
	w := newWorld(t)
	asked := 0
	w.metadata = func(rw http.ResponseWriter, r *http.Request) bool {
		asked++
		for _, bad := range []struct{ until, code int }{{3, 429}, {6, 500}, {9, 410}} {
			if asked <= bad.until {
				http.Error(rw, `{"error":"not now"}`, bad.code)
				return true
			}
		}
		return false
	}
	nonces := 0
	w.refuse = func(path string) *wire.Refusal {
		if path == wire.NoncePath {
			nonces++
		}
		switch {
		case nonces <= 3:
			return &wire.Refusal{Reason: "Busy", Message: "many ask", After: 7}
		case nonces <= 6 && path == wire.JoinPath:
			return &wire.Refusal{Reason: "PoolNotAllowed", Message: "this pool may not join", Final: true}
		}
		return nil
	}
	w.mustJoin()
	if w.joins != 1 || len(w.waits) != 15 {
		t.Errorf("%d joins after %d pauses: %v", w.joins, len(w.waits), w.waits)
	}
	for i, d := range w.waits {
		if i >= 9 && i < 12 && d < 7*time.Second || i >= 12 && d < time.Minute || d > 7*time.Minute {
			t.Errorf("pause %d is %s", i, d)
		}
	}
	said := w.said()
	for _, why := range []string{"429", "500", "410", "Busy: many ask", "PoolNotAllowed: this pool may not join"} {
		if n := strings.Count(said, why); n == 0 {
			t.Errorf("%q was not told:\n%s", why, said)
		}
	}
	if n := strings.Count(said, "cannot join yet"); n != 5 {
		t.Errorf("told %d times, want 5:\n%s", n, said)
	}
}

func TestPause(t *testing.T) {
	busy := &RefusedError{Refusal: wire.Refusal{After: 100}}
	final := &RefusedError{Refusal: wire.Refusal{Final: true}}
	for _, c := range []struct {
		failed      int
		err         error
		least, most time.Duration
	}{
		{1, errors.New("x"), 500 * time.Millisecond, time.Second},
		{3, errors.New("x"), 2 * time.Second, 4 * time.Second},
		{1000000, errors.New("x"), 15 * time.Second, 30 * time.Second},
		{1, fmt.Errorf("in it: %w", busy), 100 * time.Second, 125 * time.Second},
		{1, final, time.Minute, 75 * time.Second},
		{1, checkJoin(wire.Join{}, Machine{}, wire.K3s), time.Minute, 75 * time.Second},
		{1, fmt.Errorf("%w: no room", errHere), time.Minute, 75 * time.Second},
		{9, final, 150 * time.Second, 5 * time.Minute},
	} {
		for _, chance := range []float64{0, 0.5, 0.999} {
			if d := pause(c.failed, c.err, chance); d < c.least || d > c.most {
				t.Errorf("after %d failures, %v: %s, want %s to %s", c.failed, c.err, d, c.least, c.most)
			}
		}
	}
}

func TestJoinOnce(t *testing.T) {
	w := newWorld(t)
	w.refuse = func(string) *wire.Refusal { return &wire.Refusal{Reason: "Unknown", Message: "no"} }
	err := w.client().Join(t.Context(), true)
	if refused := (*RefusedError)(nil); !errors.As(err, &refused) || refused.Reason != "Unknown" || len(w.waits) != 0 {
		t.Errorf("%v, %d pauses", err, len(w.waits))
	}
}

func TestJoinEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	w.server.Close()
	ctx, stop := context.WithCancel(t.Context())
	w.options.Wait = func(context.Context, time.Duration) error { stop(); return ctx.Err() }
	if err := w.client().Join(ctx, false); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
}

// Of several servers any will do.
func TestJoinTakesTheServerThatIsThere(t *testing.T) {
	w := newWorld(t)
	gone := httptest.NewTLSServer(nil)
	gone.Close()
	w.settings.Servers = []string{gone.URL, w.settings.Servers[0]}
	w.mustJoin()
	if len(w.waits) != 0 {
		t.Errorf("%d pauses", len(w.waits))
	}
}

// A replica that cannot reach Azure, or has too much to do, is not the only one; what
// it refuses for another reason the others would too.
func TestJoinTakesTheServerThatCan(t *testing.T) {
	for code, asked := range map[int]bool{http.StatusServiceUnavailable: true, http.StatusTooManyRequests: true, http.StatusForbidden: false} {
		unable, w := newWorld(t), newWorld(t)
		unable.code = code
		unable.refuse = func(string) *wire.Refusal { return &wire.Refusal{Reason: "CloudUnavailable", Message: "no", After: 5} }
		w.settings.Servers = []string{unable.server.URL, w.server.URL}
		w.settings.CAHash = unable.ca.hash() + "," + w.ca.hash()
		if err := w.client().Join(t.Context(), true); (err == nil) != asked {
			t.Errorf("after %d: %v", code, err)
		}
	}
}

// Older clouds know older versions of the attested document.
func TestAttestFallsBack(t *testing.T) {
	w := newWorld(t)
	var versions []string
	w.metadata = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "attested") {
			return false
		}
		v := r.URL.Query().Get("api-version")
		versions = append(versions, v)
		if v > "2022" {
			http.Error(rw, `{"error":"Bad request. api-version is invalid"}`, http.StatusBadRequest)
			return true
		}
		return false
	}
	w.mustJoin()
	if got := strings.Join(versions, " "); got != "2025-04-07 2023-11-15 2021-02-01" {
		t.Errorf("asked for %s", got)
	}
}

// Nobody is told anything who does not come from the CA of the settings.
func TestTrust(t *testing.T) {
	ours, others := newAuthority(t, "ours"), newAuthority(t, "ours")
	loopback := net.IPv4(127, 0, 0, 1)
	serve := func(pair tls.Certificate) string {
		heard := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("{}")) }))
		heard.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		heard.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		heard.StartTLS()
		t.Cleanup(heard.Close)
		return heard.URL
	}
	good, _, _ := ours.issue(t, "good", time.Now().Add(time.Hour), loopback)
	ended, _, _ := ours.issue(t, "ended", time.Now().Add(-time.Minute), loopback)
	elsewhere, _, _ := ours.issue(t, "elsewhere", time.Now().Add(time.Hour), net.IPv4(127, 0, 0, 2))
	forged, _, _ := others.issue(t, "forged", time.Now().Add(time.Hour), loopback)
	bare := good
	bare.Certificate = good.Certificate[:1]
	// A stranger's certificate with our CA beside it: the CA is no secret.
	beside := forged
	beside.Certificate = [][]byte{forged.Certificate[0], others.cert.Raw, ours.cert.Raw}
	for name, c := range map[string]struct {
		pair tls.Certificate
		hash string
		ok   bool
	}{
		"from our CA":                       {good, ours.hash(), true},
		"one CA takes over from another":    {good, others.hash() + ", " + ours.hash(), true},
		"from another of the same name":     {forged, ours.hash(), false},
		"our CA beside a stranger":          {beside, ours.hash(), false},
		"ended":                             {ended, ours.hash(), false},
		"for another address":               {elsewhere, ours.hash(), false},
		"without the CA it cannot be known": {bare, ours.hash(), false},
	} {
		w := newWorld(t)
		w.settings.Servers, w.settings.CAHash = []string{serve(c.pair)}, c.hash
		client := w.client()
		_, err := client.post(t.Context(), client.servers[0], wire.NoncePath, trust(client.pins, client.servers[0].Hostname()), nil, []byte("{}"), 5*time.Second)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The server's words become words in files: none of them is taken that could be
// more than that.
func TestAGrantThatCannotBeUsed(t *testing.T) {
	for name, change := range map[string]func(*wire.Join){
		"a name with a path":             func(j *wire.Join) { j.NodeName = "../../etc/x" },
		"a name with a blank":            func(j *wire.Join) { j.NodeName = "a --insecure" },
		"a name in capitals":             func(j *wire.Join) { j.NodeName = "POOL100000A" },
		"no name":                        func(j *wire.Join) { j.NodeName = "" },
		"a name that is too long":        func(j *wire.Join) { j.NodeName = strings.Repeat("a", 64) },
		"a provider id of several lines": func(j *wire.Join) { j.ProviderID += "\nX=y" },
		"a provider id with a quote":     func(j *wire.Join) { j.ProviderID += `"` },
		"another cloud's id":             func(j *wire.Join) { j.ProviderID = "aws:///x" },
		"another machine":                func(j *wire.Join) { j.VMID = otherVM },
		"a server without TLS":           func(j *wire.Join) { j.Server = "http://10.0.0.4:6443" },
		"a server with a command":        func(j *wire.Join) { j.Server = "https://10.0.0.4:6443/$(id)" },
		"a server with a password":       func(j *wire.Join) { j.Server = "https://a:b@10.0.0.4:6443" },
		"a token of several lines":       func(j *wire.Join) { j.Token += "\nx" },
		"a token that pins, for kubelet": func(j *wire.Join) { j.Token = pinOfCA + "::" + goodToken },
		"no CA":                          func(j *wire.Join) { j.CA = []byte("x") },
	} {
		w := newWorld(t)
		w.grant = change
		if err := w.client().Join(t.Context(), true); err == nil || !strings.Contains(err.Error(), "cannot be used") {
			t.Errorf("%s: %v", name, err)
		}
		if w.read(bootstrapKubeconfig) != "" || w.read(RecordFile) != "" || w.read(KubeletArguments) != "" {
			t.Errorf("%s: something of it was written", name)
		}
	}
}

func TestCallback(t *testing.T) {
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	back, err := key.answer(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(back.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := challenge("127.0.0.1:"+port, &key.key.PublicKey); err != nil {
		t.Error(err)
	}
	// Many who say nothing do not keep it from ending.
	for range 2 * maxCallers {
		silent, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = silent.Close() }()
	}
	back.close()
	if conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
		_ = conn.Close()
		t.Error("it listens still")
	}
}

// Whoever reaches the machine may open connections and say nothing: from one address or
// from many, the server's callback is answered.
func TestSilentConnectionsDoNotStopTheCallback(t *testing.T) {
	for name, sources := range map[string]int{"of one address": 1, "of many": 24} {
		t.Run(name, func(t *testing.T) {
			key, err := newKey()
			if err != nil {
				t.Fatal(err)
			}
			back, err := key.answer(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer back.close()
			address := fmt.Sprintf("127.0.0.1:%d", back.listener.Addr().(*net.TCPAddr).Port)
			for i := range 120 {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%sources))}}
				conn, err := d.DialContext(t.Context(), "tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
			}
			for range 5 {
				if err := challenge(address, &key.key.PublicKey); err != nil {
					t.Errorf("the server's callback: %v", err)
				}
			}
		})
	}
}

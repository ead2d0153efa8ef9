package bootstrap

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

func TestVerdictIsPosted(t *testing.T) {
	t.Parallel()
	var got atomic.Pointer[wire.Verdict]
	var asked atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if asked.Add(1) == 1 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		v, err := wire.ParseVerdict(body)
		if err != nil || q.Method != http.MethodPost || q.URL.Path != "/v1/verdict" || q.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %v", q.Method, q.URL, err)
		}
		got.Store(&v)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer s.Close()
	r := newRoot(t)
	ca := r.path("/ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	r.write(sentinelPath, "")
	o := r.options()
	o.ReportURL, o.CAFile = s.URL+"/v1/verdict", ca
	if v := r.wait(o); v.Outcome != wire.Succeeded {
		t.Fatalf("%+v", v)
	}
	if v := got.Load(); v == nil || v.Outcome != wire.Succeeded || v.BootID != bootA {
		t.Errorf("posted: %+v", v)
	}
	// A server of somebody else gets nothing, and costs no verdict.
	asked.Store(0)
	if err := Post(t.Context(), s.URL, "", nil); err == nil || asked.Load() != 0 {
		t.Errorf("a certificate that nobody vouches for: %v", err)
	}
}

func TestRefusedPostIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "who are you", http.StatusForbidden)
	}))
	defer s.Close()
	if err := Post(t.Context(), s.URL, "", []byte("{}")); err == nil || !strings.Contains(err.Error(), "403") || asked.Load() != 1 {
		t.Errorf("%v after %d tries", err, asked.Load())
	}
}

func TestKeptVerdictIsTight(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "verdict.json")
	if err := Keep(path, []byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", dir, err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

func TestVerdictFitsItsBounds(t *testing.T) {
	v := wire.Verdict{Outcome: wire.Failed, Reason: wire.ReasonUnknown, At: time.Now()}
	for range 16 {
		e := wire.Excerpt{Source: "log"}
		for range 200 {
			e.Lines = append(e.Lines, strings.Repeat("é", 500))
		}
		v.Evidence = append(v.Evidence, e)
	}
	v.Evidence[0].Lines[199] = "the last line"
	text, err := encode(kept{Verdict: v})
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.ParseVerdict(text)
	if err != nil {
		t.Fatal(err)
	}
	if l := got.Evidence[0].Lines; l[len(l)-1] != "the last line" || !got.Evidence[0].Cut {
		t.Errorf("the end of the evidence was lost")
	}
	if len(v.Evidence[0].Lines) != 200 {
		t.Error("the caller's verdict was changed")
	}
}

func FuzzIdentity(f *testing.F) {
	f.Add("CD184545-21D4-4B5E-86D6-7B8BD5A1F6D5", true)
	f.Add("cd18454521d44b5e86d67b8bd5a1f6d5", false)
	f.Add("20.50 30.00", false)
	f.Add("NaN", false)
	f.Fuzz(func(t *testing.T, text string, efi bool) {
		if id := vmIDOf(text, efi); id != "" && (len(id) != 36 || strings.Trim(id, "0123456789abcdef-") != "") {
			t.Errorf("%q", id)
		}
		if up, ok := uptimeOf(text); up < 0 || !ok && up != 0 {
			t.Errorf("%s", up)
		}
	})
}

func TestAzureVMID(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	o := r.options()
	r.write("/sys/class/dmi/id/product_uuid", "CD184545-21D4-4B5E-86D6-7B8BD5A1F6D5\n")
	if id := azureVMID(o); id != "" {
		t.Errorf("%q, not on Azure", id)
	}
	r.write("/sys/class/dmi/id/chassis_asset_tag", azureChassis+"\n")
	if id := azureVMID(o); id != "454518cd-d421-5e4b-86d6-7b8bd5a1f6d5" {
		t.Errorf("%q on generation 1", id)
	}
	r.folder("/sys/firmware/efi")
	if id := azureVMID(o); id != "cd184545-21d4-4b5e-86d6-7b8bd5a1f6d5" {
		t.Errorf("%q on generation 2", id)
	}
}

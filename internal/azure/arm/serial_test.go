package arm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/fleet"
)

// A blobStore is Resource Manager and the storage that its links lead to.
type blobStore struct {
	t       *testing.T
	web     *httptest.Server // Resource Manager
	storage *httptest.Server
	serve   http.HandlerFunc // of storage
	link    string           // "" leads to storage
	limit   time.Duration    // of one request; 0 is the usual one
	asked   atomic.Int64     // storage
}

func newBlobStore(t *testing.T, serve http.HandlerFunc) *blobStore {
	t.Helper()
	b := &blobStore{t: t, serve: serve}
	b.storage = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.asked.Add(1)
		if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("storage got credentials: %v", r.Header)
		}
		if r.Method != http.MethodGet {
			t.Errorf("storage got %s", r.Method)
		}
		b.serve(w, r)
	}))
	t.Cleanup(b.storage.Close)
	b.web = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/retrieveBootDiagnosticsData") || r.Header.Get("Authorization") != "Bearer the-bearer" || r.URL.Query().Get("sasUriExpirationTimeInMinutes") != "10" {
			t.Errorf("Resource Manager got %s %s", r.Method, r.URL)
		}
		link := b.link
		if link == "" {
			link = b.storage.URL + "/bootdiagnostics-x/vm.serialconsole.log?sv=1&sig=s3cr3t"
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(map[string]string{"serialConsoleLogBlobUri": link}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(b.web.Close)
	return b
}

// cloud asks over the transport; nil is the usual one.
func (b *blobStore) cloud(transport policy.Transporter) azure.Boots {
	b.t.Helper()
	if transport == nil {
		transport = b.web.Client() // whose certificate is the storage's, too
	}
	c, err := arm.New(arm.Options{
		Cloud: cloud.Configuration{
			ActiveDirectoryAuthorityHost: base + "/",
			Services:                     map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: b.web.URL, Audience: base}},
		},
		Credential: static{}, Transport: transport, MaxBody: 8 << 20, RequestTimeout: b.limit,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// wantLogError fails unless err is of the kind and keeps the link to itself.
func wantLogError(t *testing.T, err error, kind fleet.Kind) {
	t.Helper()
	if !fleet.Is(err, kind) {
		t.Errorf("%v, want the kind %q", err, kind)
	}
	if err != nil && (strings.Contains(err.Error(), "s3cr3t") || strings.Contains(fmt.Sprintf("%+v", err), "s3cr3t")) {
		t.Errorf("the error tells the link: %v", err)
	}
}

// numbered is a log of n bytes in which no two places look alike.
func numbered(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		b.WriteString("line " + strconv.Itoa(i) + "\n")
	}
	return b.Bytes()[:n]
}

func TestSerialLogIsBounded(t *testing.T) {
	for _, tc := range []struct {
		name  string
		size  int
		asked int64
		serve func(w http.ResponseWriter, r *http.Request, log []byte)
	}{
		{"empty", 0, 1, nil},
		{"small", 5000, 1, nil},
		{"just so", azure.MaxSerialLog, 1, nil},
		{"large", 3<<20 + 17, 2, nil},
		{"large, and ranges are not known", 3<<20 + 17, 2, func(w http.ResponseWriter, _ *http.Request, log []byte) {
			w.Header().Set("Content-Length", strconv.Itoa(len(log)))
			_, _ = w.Write(log) // the client may have gone
		}},
		{"of unknown length", 3<<20 + 17, 1, func(w http.ResponseWriter, _ *http.Request, log []byte) {
			for len(log) > 0 {
				n := min(len(log), 100_000)
				_, _ = w.Write(log[:n])
				w.(http.Flusher).Flush()
				log = log[n:]
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := numbered(tc.size)
			b := newBlobStore(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("sig") != "s3cr3t" {
					t.Errorf("asked for %s", r.URL)
				}
				if tc.serve != nil {
					tc.serve(w, r, log)
					return
				}
				from, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-"))
				w.Header().Set("Content-Length", strconv.Itoa(len(log)-from))
				if from > 0 {
					w.WriteHeader(http.StatusPartialContent)
				}
				_, _ = w.Write(log[from:])
			})
			for _, id := range []fleet.ResourceID{instance, pool.In("virtualMachines", "f_1c0ffee0")} {
				b.asked.Store(0)
				got, err := b.cloud(nil).SerialLog(t.Context(), id)
				if want := log[max(0, len(log)-azure.MaxSerialLog):]; err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes, %v; want the last %d", len(got), err, len(want))
				}
				if n := b.asked.Load(); n != tc.asked {
					t.Errorf("storage was asked %d times, want %d", n, tc.asked)
				}
			}
		})
	}
	// What never ends is given up.
	b := newBlobStore(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(numbered(1 << 16)); err != nil {
				return
			}
		}
	})
	_, err := b.cloud(nil).SerialLog(t.Context(), instance)
	wantLogError(t, err, fleet.KindInvalid)
}

// follower is a transport that follows redirects whatever it is told.
type follower struct{ client *http.Client }

func (f follower) Do(r *http.Request) (*http.Response, error) { return f.client.Do(r) }

func TestSerialLogIsNotSoughtElsewhere(t *testing.T) {
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("elsewhere got our token")
		}
		_, _ = io.WriteString(w, "forged")
	}))
	defer elsewhere.Close()
	b := newBlobStore(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/x", http.StatusFound)
	})
	log, err := b.cloud(nil).SerialLog(t.Context(), instance)
	wantLogError(t, err, fleet.KindInvalid)
	if log != nil {
		t.Errorf("%q", log)
	}
	log, err = b.cloud(follower{b.web.Client()}).SerialLog(t.Context(), instance)
	wantLogError(t, err, fleet.KindInvalid)
	if log != nil {
		t.Errorf("%q", log)
	}
	for _, link := range []string{"http://storage.invalid/x?sig=s3cr3t", "https://u:s3cr3t@storage.invalid/", "file:///s3cr3t", "https:///?sig=s3cr3t", "://s3cr3t"} {
		b.link = link
		_, err := b.cloud(nil).SerialLog(t.Context(), instance)
		wantLogError(t, err, fleet.KindInvalid)
	}
}

func TestSerialLogErrors(t *testing.T) {
	for status, kind := range map[int]fleet.Kind{
		http.StatusNotFound: fleet.KindNotFound, http.StatusForbidden: fleet.KindDenied, http.StatusUnauthorized: fleet.KindDenied,
		http.StatusTooManyRequests: fleet.KindThrottled, http.StatusServiceUnavailable: fleet.KindTransient, http.StatusTeapot: fleet.KindInvalid,
	} {
		b := newBlobStore(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Ms-Error-Code", "SomeCode")
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		})
		_, err := b.cloud(nil).SerialLog(t.Context(), instance)
		wantLogError(t, err, kind)
		if err == nil || !strings.Contains(err.Error(), "SomeCode") || !strings.Contains(err.Error(), "read serial log") {
			t.Errorf("%d: %v", status, err)
		}
	}
	b := newBlobStore(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := b.cloud(nil).SerialLog(t.Context(), instance)
	wantLogError(t, err, fleet.KindTransient)

	ctx, cancel := context.WithCancel(t.Context())
	b = newBlobStore(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err = b.cloud(nil).SerialLog(ctx, instance)
	wantLogError(t, err, fleet.KindUnknown)
}

// A storage service that hangs is given up as one that may come back.
func TestSerialLogHasATimeLimit(t *testing.T) {
	b := newBlobStore(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	b.limit = 50 * time.Millisecond
	_, err := b.cloud(nil).SerialLog(t.Context(), instance)
	wantLogError(t, err, fleet.KindTransient)
}

// A log that is not kept is told from a conflict.
func TestSerialLogIsNotKept(t *testing.T) {
	off := refusal(http.StatusConflict, "OperationNotAllowed", "Boot diagnostics is not enabled for VM 'p_3'.")
	c, _ := newCloud(t, off)
	_, err := c.SerialLog(t.Context(), instance)
	wantLogError(t, err, fleet.KindUnsupported)
	c, _ = newCloud(t, refusal(http.StatusConflict, "OperationNotAllowed", "Operation is not allowed since another operation is in progress."))
	_, err = c.SerialLog(t.Context(), instance)
	wantLogError(t, err, fleet.KindConflict)
	c, _ = newCloud(t, refusal(http.StatusNotFound, "ResourceNotFound", "No VM; boot diagnostics neither."))
	_, err = c.SerialLog(t.Context(), instance)
	wantLogError(t, err, fleet.KindNotFound)
	c, _ = newCloud(t, answer{status: 200, body: `{}`})
	_, err = c.SerialLog(t.Context(), instance)
	wantLogError(t, err, fleet.KindNotFound)
}

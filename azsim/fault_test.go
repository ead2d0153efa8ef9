package azsim

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

func withFault(f Fault) func(*Server) { return func(s *Server) { s.Faults = []Fault{f} } }

func (b *bench) exists(disk string) bool {
	b.Helper()
	_, err := b.f.NewDisksClient().Get(b.ctx, b.group, disk, nil)
	var re *azcore.ResponseError
	if errors.As(err, &re) && re.StatusCode == http.StatusNotFound {
		return false
	}
	if err != nil {
		b.Fatal(err)
	}
	return true
}

func (b *bench) deleteDisk(name string) error {
	p, err := b.f.NewDisksClient().BeginDelete(b.ctx, b.group, name, nil)
	if err != nil {
		return err
	}
	_, err = p.PollUntilDone(b.ctx, nil)
	return err
}

// Each effect, on the deletion of a disk: what the client hears, and whether the
// disk is there afterwards.
func TestFaultsOnADeletion(t *testing.T) {
	for name, c := range map[string]struct {
		fault Fault
		check func(t *testing.T, err error)
		stays bool
	}{
		"throttle": {Fault{Effect: EffectThrottle}, func(t *testing.T, err error) { wantCode(t, err, "TooManyRequests") }, true},
		"error":    {Fault{Effect: EffectError, Status: 503, Code: "ServerBusy"}, func(t *testing.T, err error) { wantCode(t, err, "ServerBusy") }, true},
		"dropBefore": {Fault{Effect: EffectDropBefore}, func(t *testing.T, err error) {
			if !errors.Is(err, ErrDropped) {
				t.Error(err)
			}
		}, true},
		"dropAfter": {Fault{Effect: EffectDropAfter}, func(t *testing.T, err error) {
			if !errors.Is(err, ErrDropped) {
				t.Error(err)
			}
		}, false},
		"failAtEnd":     {Fault{Effect: EffectFailAtEnd, Code: "AllocationFailed"}, func(t *testing.T, err error) { wantCode(t, err, "AllocationFailed") }, true},
		"reportFailure": {Fault{Effect: EffectReportFailure}, func(t *testing.T, err error) { wantCode(t, err, "InternalServerError") }, false},
		"reportSuccess": {Fault{Effect: EffectReportSuccess}, func(t *testing.T, err error) {
			if err != nil {
				t.Error(err)
			}
		}, true},
		"expireToken": {Fault{Effect: EffectExpireToken}, func(t *testing.T, err error) { wantCode(t, err, "ExpiredAuthenticationToken") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.fault.Method = http.MethodDelete
			inVirtualTime(t, withFault(c.fault), func(b *bench) {
				b.disk("d", 4)
				c.check(t, b.deleteDisk("d"))
				time.Sleep(time.Minute)
				if got := b.exists("d"); got != c.stays {
					t.Errorf("the disk is there: %v", got)
				}
			})
		})
	}
}

func TestOperationThatNeverEnds(t *testing.T) {
	inVirtualTime(t, withFault(Fault{Action: "Microsoft.Compute/snapshots/write", Effect: EffectNeverEnds, Count: 1}), func(b *bench) {
		d := b.disk("d", 4)
		p, err := b.beginSnapshot("s", *d.ID)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(b.ctx, time.Hour)
		defer cancel()
		if _, err := p.PollUntilDone(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		_, err = b.f.NewSnapshotsClient().BeginDelete(b.ctx, b.group, "s", nil)
		wantCode(t, err, "OperationNotAllowed")
		b.snapshot("s2", *d.ID) // the fault is used up
	})
}

func TestHangingRequestEndsWithItsClient(t *testing.T) {
	inVirtualTime(t, withFault(Fault{Method: http.MethodGet, Path: "/disks/", Effect: EffectHang}), func(b *bench) {
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		defer cancel()
		if _, err := b.f.NewDisksClient().Get(ctx, b.group, "d", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// The SDK waits as Retry-After says, and then gets through.
func TestThrottledClientWaitsAsTold(t *testing.T) {
	inVirtualTime(t, withFault(Fault{Action: "*/disks/read", Effect: EffectThrottle, RetryAfterSeconds: 37, Count: 2}), func(b *bench) {
		o := b.s.ClientOptions() // with the SDK's retries
		c, err := armcompute.NewDisksClient(DefaultSubscription, b.s.Credential(""), o)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = c.Get(b.ctx, b.group, "d", nil)
		wantCode(t, err, "ResourceNotFound")
		if took := time.Since(began); took != 74*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestPatchRules(t *testing.T) {
	patch := func(b *bench) map[string]*string {
		d := b.disk("d", 4)
		r := b.sendAbsolute(http.MethodPatch, *d.ID, "2022-07-02", `{"tags":{"a":"1","b":"2"}}`)
		if r.StatusCode != http.StatusAccepted {
			t.Fatal(errorOf(t, r))
		}
		time.Sleep(time.Minute)
		b.sendAbsolute(http.MethodPatch, *d.ID, "2022-07-02", `{"tags":{"a":null,"c":"3"}}`)
		time.Sleep(time.Minute)
		got, err := b.f.NewDisksClient().Get(b.ctx, b.group, "d", nil)
		if err != nil {
			t.Fatal(err)
		}
		if *got.Properties.DiskSizeGB != 4 {
			t.Error("what was absent is gone")
		}
		return got.Tags
	}
	inVirtualTime(t, nil, func(b *bench) {
		if tags := patch(b); tags["a"] != nil || *tags["b"] != "2" || *tags["c"] != "3" {
			t.Errorf("got %v", tags)
		}
	})
	inVirtualTime(t, withFault(Fault{Effect: EffectIgnoreNull}), func(b *bench) {
		if tags := patch(b); tags["a"] == nil || *tags["c"] != "3" {
			t.Errorf("null is not ignored: %v", tags)
		}
	})
}

func TestStaleRead(t *testing.T) {
	stale := Fault{Action: "Microsoft.Compute/disks/read", Effect: EffectStale, Skip: 2, Count: 1}
	inVirtualTime(t, withFault(stale), func(b *bench) {
		d := b.disk("d", 4) // the first read
		tag := func() string {
			r, err := b.f.NewDisksClient().Get(b.ctx, b.group, "d", nil)
			if err != nil {
				t.Fatal(err)
			}
			return val(r.Tags["a"])
		}
		before := tag()
		b.sendAbsolute(http.MethodPatch, *d.ID, "2022-07-02", `{"tags":{"a":"1"}}`)
		if got := []string{before, tag(), tag()}; got[0] != "" || got[1] != "" || got[2] != "1" {
			t.Errorf("got %q", got)
		}
	})
}

func TestFaultsAtRunTime(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		r := b.sendAbsolute(http.MethodPost, "/azsim/faults", "", `{"name":"x","method":"GET","path":"/disks$","skip":1,"count":1,"effect":"error"}`)
		if r.StatusCode != http.StatusCreated {
			t.Fatal(errorOf(t, r))
		}
		for i, want := range []int{200, 500, 200} {
			if r := b.send(http.MethodGet, "/providers/Microsoft.Compute/disks", "2022-07-02", ""); r.StatusCode != want {
				t.Errorf("request %d: %d, want %d", i, r.StatusCode, want)
			}
		}
		if f := b.s.FaultsNow(); len(f) != 1 || f[0].Matched != 3 || f[0].Met != 1 {
			t.Errorf("%+v", f)
		}
		for _, body := range []string{`{"effect":"none"}`, `{"effect":"error","path":"("}`, `{"effect":"error","wrong":1}`, `{`} {
			if r := b.sendAbsolute(http.MethodPost, "/azsim/faults", "", body); r.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %d", body, r.StatusCode)
			}
		}
		b.sendAbsolute(http.MethodDelete, "/azsim/faults/x", "", "")
		if f := b.s.FaultsNow(); len(f) != 0 {
			t.Errorf("%+v", f)
		}
	})
}

func TestRequestsAreRemembered(t *testing.T) {
	var seen []Request
	inVirtualTime(t, func(s *Server) { s.OnRequest = func(r Request) { seen = append(seen, r) } }, func(b *bench) {
		b.disk("D", 4)
		_, _ = b.f.NewDisksClient().Get(b.ctx, b.group, "none", nil) // only its trace counts
		if len(seen) < 3 || len(b.s.Requests()) != len(seen) {
			t.Fatalf("%d and %d", len(seen), len(b.s.Requests()))
		}
		put, get := seen[0], seen[len(seen)-1]
		if put.Action != "Microsoft.Compute/disks/write" || put.Status != http.StatusAccepted || !strings.HasSuffix(put.Path, "/microsoft.compute/disks/d") {
			t.Errorf("%+v", put)
		}
		if get.Code != "ResourceNotFound" || get.Status != http.StatusNotFound {
			t.Errorf("%+v", get)
		}
	})
}

// The same seed and requests give the same answers.
func TestDeterminism(t *testing.T) {
	trace := func(seed uint64) string {
		var out strings.Builder
		inVirtualTime(t, func(s *Server) { s.Seed = seed }, func(b *bench) {
			began := time.Now()
			b.image()
			d := b.disk("d", 4)
			b.snapshot("s", *d.ID)
			out.WriteString(*d.Properties.UniqueID + time.Since(began).String())
		})
		return out.String()
	}
	if a, b := trace(1), trace(1); a != b {
		t.Errorf("%s and %s", a, b)
	}
	if a, b := trace(1), trace(2); a == b {
		t.Errorf("two seeds give %s", a)
	}
}

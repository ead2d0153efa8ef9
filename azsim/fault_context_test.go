package azsim

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// Each effect by a request's context, on the deletion of a disk, beside a fault of
// the server's that the request must not meet.
func TestFaultOfAContext(t *testing.T) {
	const dropped = "dropped"
	for name, c := range map[string]struct {
		fault Fault
		want  string // code of the client's error
		stays bool
	}{
		"throttle":      {Fault{Effect: EffectThrottle}, "TooManyRequests", true},
		"error":         {Fault{Effect: EffectError, Status: 503, Code: "ServerBusy"}, "ServerBusy", true},
		"dropBefore":    {Fault{Effect: EffectDropBefore}, dropped, true},
		"dropAfter":     {Fault{Effect: EffectDropAfter}, dropped, false},
		"failAtEnd":     {Fault{Effect: EffectFailAtEnd, Code: "AllocationFailed"}, "AllocationFailed", true},
		"reportFailure": {Fault{Effect: EffectReportFailure}, "InternalServerError", false},
		"reportSuccess": {Fault{Effect: EffectReportSuccess}, "", true},
		"expireToken":   {Fault{Effect: EffectExpireToken}, "ExpiredAuthenticationToken", true},
		"invalid":       {Fault{Effect: "none"}, "InvalidFault", true},
		"not a GET":     {Fault{Effect: EffectStale}, "", false},
		"not a PATCH":   {Fault{Effect: EffectIgnoreNull}, "", false},
		"no rule":       {Fault{Effect: EffectThrottle, Method: http.MethodPut, Skip: 3, Path: "^/none$"}, "TooManyRequests", true},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, withFault(Fault{Method: http.MethodDelete, Effect: EffectError, Code: "Listed"}), func(b *bench) {
				b.disk("d", 4)
				p, err := b.f.NewDisksClient().BeginDelete(WithFault(b.ctx, c.fault), b.group, "d", nil)
				if err == nil {
					_, err = p.PollUntilDone(b.ctx, nil)
				}
				got := code(err)
				if errors.Is(err, ErrDropped) {
					got = dropped
				}
				if got != c.want {
					t.Errorf("the client hears %q, want %q", got, c.want)
				}
				time.Sleep(time.Minute)
				if got := b.exists("d"); got != c.stays {
					t.Errorf("the disk is there: %v", got)
				}
				if f := b.s.FaultsNow(); f[0].Matched != 0 {
					t.Errorf("the request counts for a fault of the server: %+v", f[0])
				}
				_, err = b.f.NewDisksClient().BeginDelete(b.ctx, b.group, "d", nil)
				wantCode(t, err, "Listed")
			})
		})
	}
}

func TestFaultOfAContextOnItsOperation(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		d := b.disk("d", 4)
		p, err := b.f.NewSnapshotsClient().BeginCreateOrUpdate(WithFault(b.ctx, Fault{Effect: EffectNeverEnds}), b.group, "s", armcompute.Snapshot{
			Location: ptr(DefaultLocation), Properties: &armcompute.SnapshotProperties{CreationData: copyOf(*d.ID)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(b.ctx, time.Hour)
		defer cancel()
		if _, err := p.PollUntilDone(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestHangOfAContextEndsWithItsClient(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		ctx, cancel := context.WithTimeout(WithFault(b.ctx, Fault{Effect: EffectHang}), time.Minute)
		defer cancel()
		if _, err := b.f.NewDisksClient().Get(ctx, b.group, "d", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestIgnoreNullOfAContext(t *testing.T) {
	inVirtualTime(t, nil, func(b *bench) {
		d := b.disk("d", 4)
		b.sendAbsolute(http.MethodPatch, *d.ID, "2022-07-02", `{"tags":{"a":"1","b":"2"}}`)
		time.Sleep(time.Minute)
		ctx := b.ctx
		b.ctx = WithFault(ctx, Fault{Effect: EffectIgnoreNull})
		b.sendAbsolute(http.MethodPatch, *d.ID, "2022-07-02", `{"tags":{"a":null,"c":"3"}}`)
		b.ctx = ctx
		time.Sleep(time.Minute)
		b.s.View(func(v *View) {
			if tags := v.Get(*d.ID).(*armcompute.Disk).Tags; val(tags["a"]) != "1" || val(tags["c"]) != "3" {
				t.Errorf("null is not ignored: %v", tags)
			}
		})
	})
}

// A stale answer is of before the change, also where the resource was made or
// deleted by it.
func TestStaleAnswersAreKeptFromTheStart(t *testing.T) {
	inVirtualTime(t, func(s *Server) { s.KeepAnswers = true }, func(b *bench) {
		stale := WithFault(b.ctx, Fault{Effect: EffectStale})
		get := func(ctx context.Context) string {
			r, err := b.f.NewDisksClient().Get(ctx, b.group, "d", nil)
			return code(err) + val(r.Tags["a"])
		}
		none := get(b.ctx)
		d := b.disk("d", 4)
		made, made2 := get(stale), get(b.ctx)
		b.sendAbsolute(http.MethodPatch, *d.ID, "2022-07-02", `{"tags":{"a":"1"}}`)
		old, now := get(stale), get(b.ctx)
		time.Sleep(time.Minute)
		if err := b.deleteDisk("d"); err != nil {
			t.Fatal(err)
		}
		wantList(t, "answers", []string{none, made, made2, old, now, get(stale), get(b.ctx)}, "ResourceNotFound", "", "", "", "1", "1", "ResourceNotFound")
	})
}

package lead_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/cluster/lead"
	"github.com/ortet/ortet/test/kubesim"
)

const namespace, name = "default", "leader"

// replicas run work on one API server, which returns half a minute after its context has ended.
type replicas struct {
	t      *testing.T
	client kubernetes.Interface
	mu     sync.Mutex
	log    []string
}

func (r *replicas) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, text)
}

func (r *replicas) run(ctx context.Context, who string) (ended chan error) {
	ended = make(chan error, 1)
	go func() {
		ended <- lead.Run(ctx, lead.Config{Client: r.client, Namespace: namespace, Name: name, Identity: who}, func(ctx context.Context) {
			r.say(who + " begins")
			<-ctx.Done()
			time.Sleep(30 * time.Second)
			r.say(who + " ends")
		})
		r.say(who + " returns")
	}()
	return ended
}

func (r *replicas) holder() string {
	l, err := r.client.CoordinationV1().Leases(namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		r.t.Fatalf("%+v, %v", l, err)
	}
	return *l.Spec.HolderIdentity
}

func leading(t *testing.T, f func(r *replicas)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://kubesim.invalid", Transport: &kubesim.Server{}})
		if err != nil {
			t.Fatal(err)
		}
		f(&replicas{t: t, client: client})
	})
}

// A replica that is told to end keeps the Lease until its work has ended: no other leads meanwhile.
func TestEndsWorkBeforeItReleases(t *testing.T) {
	leading(t, func(r *replicas) {
		first, stop := context.WithCancel(r.t.Context())
		ended := r.run(first, "a")
		time.Sleep(time.Minute)
		second, stopSecond := context.WithCancel(r.t.Context())
		other := r.run(second, "b")
		time.Sleep(time.Minute)
		stop()
		time.Sleep(20 * time.Second)
		if at := r.holder(); at != "a" {
			t.Errorf("%q holds the Lease while a works", at)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		stopSecond()
		if err := <-other; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if want := []string{"a begins", "a ends", "a returns", "b begins", "b ends", "b returns"}; !slices.Equal(r.log, want) {
			t.Errorf("%q, want %q", r.log, want)
		}
	})
}

// A replica that lost its Lease ends its work, and leads again only after that.
func TestEndsWorkOfALeaseThatIsLost(t *testing.T) {
	leading(t, func(r *replicas) {
		ctx, stop := context.WithCancel(r.t.Context())
		ended := r.run(ctx, "a")
		time.Sleep(time.Minute)
		leases := r.client.CoordinationV1().Leases(namespace)
		l, err := leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		another, now := "another", metav1.NewMicroTime(time.Now())
		l.Spec.HolderIdentity, l.Spec.RenewTime = &another, &now
		if _, err := leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
		if want := []string{"a begins", "a ends", "a begins", "a ends", "a returns"}; !slices.Equal(r.log, want) {
			t.Errorf("%q, want %q", r.log, want)
		}
	})
}

// A replica that waits for the Lease returns at once.
func TestEndsWithoutLeading(t *testing.T) {
	leading(t, func(r *replicas) {
		first, stop := context.WithCancel(r.t.Context())
		ended := r.run(first, "a")
		time.Sleep(time.Minute)
		second, stopSecond := context.WithCancel(r.t.Context())
		other := r.run(second, "b")
		time.Sleep(time.Minute)
		stopSecond()
		begun := time.Now()
		if err := <-other; !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
	})
}

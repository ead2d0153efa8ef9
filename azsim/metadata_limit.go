package azsim

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/ortet/ortet/azsim/metadata"
)

// Requests a second and instance ("Rate limiting"). That it is any second, and that
// a refused request does not count, is inferred.
const (
	imdsRate     = 5
	identityRate = 20
)

// admit says whether one more request of an instance to a category of its metadata
// service is within the limit.
func (s *Server) admit(e *entry, category string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, _ := instanceOf(e)
	times, rate := &x.asked, imdsRate
	if category == "identity" {
		times, rate = &x.askedIdentity, identityRate
	}
	now := time.Now()
	for len(*times) > 0 && now.Sub((*times)[0]) >= time.Second {
		*times = (*times)[1:]
	}
	if len(*times) >= rate {
		return false
	}
	*times = append(*times, now)
	return true
}

// imdsAction begins the actions of faults that the metadata service meets.
const imdsAction = "imds/"

// imdsFault returns the fault that a request to a category of an instance's metadata
// service meets: one whose action names it, as "imds/attested" or "imds/*". Its path
// is looked for in the instance's id, followed by that of the request.
func (s *Server) imdsFault(e *entry, category string, r *http.Request) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if !strings.HasPrefix(strings.ToLower(f.Action), imdsAction) || !actionMatches(f.Action, imdsAction+category) ||
			f.Method != "" && !strings.EqualFold(f.Method, r.Method) || f.path != nil && !f.path.MatchString(e.id.String()+r.URL.Path) {
			continue
		}
		f.Matched++
		if f.Matched <= f.Skip || f.Count > 0 && f.Met >= f.Count {
			continue
		}
		if f.Probability > 0 && f.Probability < 1 && !s.meets(f, category+" "+e.key) {
			continue
		}
		f.Met++
		met := *f
		return &met
	}
	return nil
}

// metByIMDS answers as the fault has it, if its effect means anything here.
func (f *Fault) metByIMDS(w http.ResponseWriter, r *http.Request) bool {
	switch f.Effect {
	case EffectThrottle:
		w.Header().Set("Retry-After", "1")
		metadata.Refuse(w, http.StatusTooManyRequests, "Too many requests")
	case EffectError:
		status, why := f.Status, f.Message
		status = cmp.Or(status, http.StatusInternalServerError)
		why = cmp.Or(why, http.StatusText(status))
		metadata.Refuse(w, status, why)
	case EffectDropBefore:
		panic(http.ErrAbortHandler)
	case EffectHang:
		<-r.Context().Done()
	default:
		return false
	}
	return true
}

package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
)

// Source of fact for all here: "Azure Instance Metadata Service" and "Scheduled
// Events for Linux VMs".
const (
	eventsPath = "/metadata/scheduledevents?api-version=2020-07-01"
	namePath   = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"

	// every is how often is asked: once a second is what Microsoft recommends, and the
	// service lets five requests a second through, of all on the machine together.
	every = time.Second
	// within bounds an answer. Those of more than a second are known.
	within = 5 * time.Second
	// firstWithin is of the first one, which switches events on and may take two
	// minutes.
	firstWithin = 150 * time.Second
	// slowest is the longest pause after failures: an eviction is announced 30 s before.
	slowest = 5 * time.Second
	// hopeless is the pause where asking again is of little use: something has to be
	// changed first. So it is after unlikely refusals for good in a row: an eviction
	// must not be missed because of one.
	hopeless = time.Minute
	unlikely = 10
)

// AskMetadata puts one request to the metadata service. body nil sends none. An
// error is that there was no answer.
type AskMetadata func(ctx context.Context, method, path string, body []byte) (bootstrap.Answer, error)

// Metadata returns a client of a metadata service, "http://HOST[:PORT]" ("" is Azure's for
// this machine), bounded by the context or else by a few seconds. No proxy is used.
func Metadata(service string) AskMetadata {
	service = cmp.Or(service, bootstrap.MetadataService)
	return func(ctx context.Context, method, path string, body []byte) (bootstrap.Answer, error) {
		u, err := url.Parse(service + path)
		if err != nil {
			return bootstrap.Answer{}, err
		}
		q := bootstrap.Question{Method: method, URL: u, Within: within, Header: http.Header{"Metadata": {"true"}}, Type: "application/json", Body: body}
		if end, ok := ctx.Deadline(); ok {
			q.Within = time.Until(end)
		}
		return bootstrap.Ask(ctx, q)
	}
}

// A metadataError is an answer of the metadata service that is none.
type metadataError struct {
	code int
	said string
}

func (r metadataError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("the metadata service answered %d: %s", r.code, r.said), ": ")
}

// passing reports that the same request may succeed later: 410 lasts up to 70 s, 429 means
// too many requests.
func (r metadataError) passing() bool {
	return r.code >= 500 || r.code == 408 || r.code == 410 || r.code == 429
}

// granted is the error of a reply that is not 200.
func granted(r bootstrap.Answer) error {
	if r.Code == 200 {
		return nil
	}
	return metadataError{r.Code, plain(string(r.Body[:min(len(r.Body), 1<<10)]), maxDescription)}
}

// rest is the pause after this number of failures in a row, the last of which is err.
func rest(failures int, err error) time.Duration {
	var refused metadataError
	if errors.As(err, &refused) && !refused.passing() && failures >= unlikely {
		return hopeless
	}
	if failures == 0 {
		return every
	}
	return min(every<<min(failures, 8), slowest)
}

// clock is Azure's, which events use: this machine's may be wrong, and may be set while it
// runs. Its zero value is unset.
type clock struct {
	azure time.Time // what it is at
	local time.Time // this time here, with its monotonic reading
}

// trusted is how far apart two clocks may be that count as equal: Date has whole
// seconds.
const trusted = 2 * time.Second

// hear sets the clock from a reply; asked and came are local times.
func (c *clock) hear(r bootstrap.Answer, asked, came time.Time) {
	middle := asked.Add(came.Sub(asked) / 2)
	told := middle
	if !r.Date.IsZero() {
		told = r.Date.Add(time.Second / 2) // somewhere in its second
		if apart := told.Sub(middle.Round(0)); apart.Abs() <= trusted {
			told = middle
		}
	}
	if told = told.Round(0); c.local.IsZero() || told.Sub(c.now(middle)).Abs() > trusted {
		c.azure, c.local = told, middle
	}
}

// now is Azure's time at a local one. It goes on by what passes, whatever becomes of
// this machine's clock.
func (c *clock) now(local time.Time) time.Time {
	if c.local.IsZero() {
		return local.UTC().Round(0)
	}
	return c.azure.Add(local.Sub(c.local)).UTC()
}

// ahead is how far it is ahead of this machine's clock; 0 where they are equal.
func (c *clock) ahead(local time.Time) time.Duration {
	ahead := c.now(local).Sub(local.Round(0)).Round(time.Second)
	if ahead.Abs() <= trusted {
		return 0
	}
	return ahead
}

// fetchName asks for this machine's name in Azure.
func fetchName(ctx context.Context, ask AskMetadata) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := ask(ctx, "GET", namePath, nil)
	if err == nil {
		err = granted(r)
	}
	if err != nil {
		return "", fmt.Errorf("asking for this machine's name in Azure: %w", err)
	}
	name := strings.TrimSpace(string(r.Body))
	if name == "" || len(name) > maxName || plain(name, maxName) != name {
		return "", fmt.Errorf("asking for this machine's name in Azure: it is %q", plain(name, maxName))
	}
	return name, nil
}

// approve lets an event begin, for all machines that it names. The service answers 200 also
// if it was approved before.
func approve(ctx context.Context, ask AskMetadata, id string) error {
	type start struct {
		EventID string `json:"EventId"`
	}
	body, err := json.Marshal(struct{ StartRequests []start }{[]start{{id}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := ask(ctx, "POST", eventsPath, body)
	if err == nil {
		err = granted(r)
	}
	if err != nil {
		return fmt.Errorf("acknowledging the event %s: %w", id, err)
	}
	return nil
}

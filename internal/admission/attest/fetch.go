package attest

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
)

const (
	maxCertificate = 16 << 10
	maxName        = 200
	maxKept        = 64 // certificates and failures; Azure has some ten intermediates
	keepFor        = 24 * time.Hour
	failFor        = time.Minute
	fetchTime      = 5 * time.Second
)

// Publication is where Microsoft publishes the certificates of its authorities.
const Publication = "http://www.microsoft.com/pkiops/certs/"

// Fetcher is the Issuers that fetches from Publication, and from nowhere else: a
// document's addresses are a stranger's, and others followed them anywhere
// (teleport #62158). A certificate is kept for a day, and beyond that while it
// cannot be had; that it cannot be had is kept for a minute.
type Fetcher struct {
	transport http.RoundTripper
	now       func() time.Time
	pace      *rate.Limiter
	flight    singleflight.Group

	mu   sync.Mutex
	kept map[string]fetched
}

type fetched struct {
	certificate *x509.Certificate // nil where it could not be had
	err         error
	at          time.Time
}

// NewFetcher gives a Fetcher over a transport, by http.DefaultTransport where it is
// nil.
func NewFetcher(transport http.RoundTripper, now func() time.Time) *Fetcher {
	if transport == nil {
		transport = http.DefaultTransport
	}
	return &Fetcher{transport: transport, now: now, pace: rate.NewLimiter(1, maxKept/2), kept: map[string]fetched{}}
}

// allowed reads an address strictly: the name is one file below Publication, of
// plain characters, so that nothing about it can be read in two ways.
func allowed(address string) error {
	name, ok := strings.CutPrefix(address, Publication)
	plain := strings.Trim(strings.ReplaceAll(name, "%20", ""), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == ""
	if !ok || !plain || len(name) > maxName || (!strings.HasSuffix(name, ".crt") && !strings.HasSuffix(name, ".cer")) {
		return fmt.Errorf("an issuer's address %.100q, which is no certificate below %s", address, Publication)
	}
	return nil
}

// Issuer gives the certificate at an address.
func (f *Fetcher) Issuer(ctx context.Context, address string) (*x509.Certificate, error) {
	if err := allowed(address); err != nil {
		return nil, err
	}
	f.mu.Lock()
	k, found := f.kept[address]
	f.mu.Unlock()
	now := f.now()
	if found && ((k.certificate != nil && now.Sub(k.at) < keepFor) || (k.certificate == nil && now.Sub(k.at) < failFor)) {
		return k.certificate, k.err
	}
	// Who waits for the same certificate shares the answer, so it does not end with
	// the first one's request.
	answer := f.flight.DoChan(address, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTime)
		defer cancel()
		return f.renew(ctx, address, k)
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("fetch %s: %w", address, ctx.Err())
	case a := <-answer:
		if a.Err != nil {
			return nil, a.Err
		}
		c, _ := a.Val.(*x509.Certificate)
		return c, nil
	}
}

func (f *Fetcher) renew(ctx context.Context, address string, before fetched) (*x509.Certificate, error) {
	if !f.pace.AllowN(f.now(), 1) {
		if before.certificate != nil {
			return before.certificate, nil
		}
		return nil, fmt.Errorf("fetch %s: too many others were asked for", address)
	}
	c, err := f.fetch(ctx, address)
	if err != nil {
		err = fmt.Errorf("fetch %s: %w", address, err)
		if before.certificate != nil {
			// An intermediate that was right yesterday still verifies by its signature
			// and its own dates.
			c, err = before.certificate, nil
		}
	}
	f.keep(address, fetched{certificate: c, err: err, at: f.now()})
	return c, err
}

// keep keeps an answer in place of the oldest: of failures first, so that a
// stranger's addresses do not drive out what everybody needs.
func (f *Fetcher) keep(address string, k fetched) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.kept[address]; !known && len(f.kept) >= maxKept {
		out := ""
		for a, o := range f.kept {
			w, had := f.kept[out], out != ""
			switch {
			case !had, o.certificate == nil && w.certificate != nil:
				out = a
			case (o.certificate == nil) == (w.certificate == nil) && o.at.Before(w.at):
				out = a
			}
		}
		delete(f.kept, out)
	}
	f.kept[address] = k
}

func (f *Fetcher) fetch(ctx context.Context, address string) (_ *x509.Certificate, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	// The transport itself follows no redirect.
	answer, err := f.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %d", answer.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxCertificate+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxCertificate {
		return nil, fmt.Errorf("more than %d bytes", maxCertificate)
	}
	if block, _ := pem.Decode(text); block != nil {
		text = block.Bytes
	}
	c, err := x509.ParseCertificate(text)
	if err != nil {
		return nil, err
	}
	if !c.IsCA {
		return nil, errors.New("the certificate there is no authority's")
	}
	return c, strong(c)
}

var _ Issuers = (*Fetcher)(nil)

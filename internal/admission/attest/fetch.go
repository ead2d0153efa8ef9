package attest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxCertificate = 16 << 10
	maxName        = 200
	maxKept        = 64 // certificates and failures of unknown names
	maxAddresses   = 2  // that are followed of one certificate
	keepFor        = 24 * time.Hour
	failFor        = time.Minute
	knownFailFor   = 10 * time.Second
	fetchTime      = 5 * time.Second
)

// Publication is where Microsoft publishes the certificates of its authorities.
const Publication = "http://www.microsoft.com/pkiops/certs/"

// publications are all where it does: certificates name the one or the other.
func publications() []string {
	return []string{Publication, "http://caissuers.microsoft.com/pkiops/certs/"}
}

// Fetcher is the Issuers that fetches from Microsoft's publications, and from nowhere
// else: a document's addresses are a stranger's, and others followed them anywhere
// (teleport #62158). A certificate is kept for a day, and beyond that while it
// cannot be had; that it cannot be had is kept for a minute. Names that are known are
// fetched whenever they are needed, others at a pace of each who asks and of all.
type Fetcher struct {
	transport http.RoundTripper
	now       func() time.Time
	pace      *pace
	known     map[string]bool

	mu      sync.Mutex
	kept    map[string]*fetched
	flights map[string]*flight
}

type fetched struct {
	certificate *x509.Certificate // nil where it could not be had
	err         error
	at, used    time.Time
	refetched   time.Time // last attempt to replace it because it did not sign a child
}

// A flight is a fetch that is under way. What it gave is there once done is closed.
type flight struct {
	done        chan struct{}
	certificate *x509.Certificate
	err         error
}

// NewFetcher returns a Fetcher over a transport, by http.DefaultTransport where it is
// nil.
func NewFetcher(transport http.RoundTripper, now func() time.Time) *Fetcher {
	transport = cmp.Or(transport, http.DefaultTransport)
	return &Fetcher{transport: transport, now: now, pace: newPace(), known: knownAddresses(), kept: map[string]*fetched{}, flights: map[string]*flight{}}
}

// allowed reads an address strictly: the name is one file below a publication, of
// plain characters, so that nothing about it can be read in two ways.
func allowed(address string) error {
	for _, p := range publications() {
		name, ok := strings.CutPrefix(address, p)
		plain := strings.Trim(strings.ReplaceAll(name, "%20", ""), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") == ""
		if ok && plain && len(name) <= maxName && (strings.HasSuffix(name, ".crt") || strings.HasSuffix(name, ".cer")) {
			return nil
		}
	}
	return fmt.Errorf("an issuer's address %.100q, which is no certificate below %s", address, strings.Join(publications(), " or "))
}

// Issuers implements the interface: the first issuer that did not sign itself ends the
// search. One that did ends a chain only where the roots have it; the bridge, by which
// it descends from another root, is known by its name.
func (f *Fetcher) Issuers(ctx context.Context, child *x509.Certificate, from string) ([]*x509.Certificate, error) {
	var found []*x509.Certificate
	var errs []error
	for _, address := range f.addresses(child) {
		c, err := f.get(ctx, address, from)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if child.CheckSignatureFrom(c) != nil {
			// The response came without TLS, so the cached certificate may be spoofed.
			if c = f.refetch(ctx, address, from, child); c == nil {
				continue
			}
		}
		found = append(found, c)
		if !bytes.Equal(c.RawSubject, c.RawIssuer) {
			break
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, errors.Join(errs...)
}

func (f *Fetcher) addresses(child *x509.Certificate) []string {
	all := slices.Clone(child.IssuingCertificateURL[:min(len(child.IssuingCertificateURL), maxAddresses)])
	if bridge := addressOf(bridgeOf(child.Issuer.CommonName)); f.known[bridge] && !slices.Contains(all, bridge) {
		all = append(all, bridge)
	}
	return all
}

// Warm fetches what is known by its name, so that the first machines after a start
// wait for nothing. It gives how many of how many it has, and why others are missing.
func (f *Fetcher) Warm(ctx context.Context) (has, of int, err error) {
	var errs []error
	for _, name := range knownNames() {
		of++
		if _, err := f.get(ctx, addressOf(name), ""); err != nil {
			errs = append(errs, err)
			continue
		}
		has++
	}
	return has, of, errors.Join(errs...)
}

// get returns the certificate at an address.
func (f *Fetcher) get(ctx context.Context, address, from string) (*x509.Certificate, error) {
	if err := allowed(address); err != nil {
		return nil, err
	}
	fl, c, err := f.begin(ctx, address, from)
	if fl == nil {
		return c, err
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("fetch %s: %w", address, ctx.Err())
	case <-fl.done:
		return fl.certificate, fl.err
	}
}

// begin returns what is kept, or the fetch that is under way, which it begins if need
// be. Who waits for the same certificate shares the answer, so the fetch does not end
// with the first one's request; nor does it count as theirs.
func (f *Fetcher) begin(ctx context.Context, address, from string) (*flight, *x509.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	k := f.kept[address]
	if k != nil {
		k.used = now
		if now.Sub(k.at) < f.keptFor(address, k) {
			return nil, k.certificate, k.err
		}
	}
	if fl := f.flights[address]; fl != nil {
		return fl, nil, nil
	}
	renewal := k != nil && k.certificate != nil
	if !renewal && !f.known[address] && !f.pace.take(from, now) {
		return nil, nil, fmt.Errorf("fetch %s: too many others were asked for", address)
	}
	return f.launch(ctx, address, nil), nil, nil
}

// launch starts a fetch; f.mu is locked. If child is not nil, only a certificate that
// signed it is cached.
func (f *Fetcher) launch(ctx context.Context, address string, child *x509.Certificate) *flight {
	fl := &flight{done: make(chan struct{})}
	f.flights[address] = fl
	go f.fly(context.WithoutCancel(ctx), address, child, fl)
	return fl
}

// refetch replaces a cached certificate that did not sign the child, at most once per
// failFor and address; nil if the response did not sign it either. Other clients use the
// cached certificate meanwhile.
func (f *Fetcher) refetch(ctx context.Context, address, from string, child *x509.Certificate) *x509.Certificate {
	fl := f.beginRefetch(ctx, address, from, child)
	if fl == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-fl.done:
	}
	if fl.certificate == nil || child.CheckSignatureFrom(fl.certificate) != nil {
		return nil
	}
	return fl.certificate
}

// beginRefetch starts or joins the fetch of refetch; nil if it is too early for one.
func (f *Fetcher) beginRefetch(ctx context.Context, address, from string, child *x509.Certificate) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.flights[address]; fl != nil {
		return fl
	}
	now, k := f.now(), f.kept[address]
	if k == nil || now.Sub(k.at) < failFor || now.Sub(k.refetched) < failFor {
		return nil
	}
	if !f.known[address] && !f.pace.take(from, now) {
		return nil
	}
	k.refetched = now
	return f.launch(ctx, address, child)
}

func (f *Fetcher) keptFor(address string, k *fetched) time.Duration {
	switch {
	case k.certificate != nil:
		return keepFor
	case f.known[address]:
		return knownFailFor
	}
	return failFor
}

func (f *Fetcher) fly(ctx context.Context, address string, child *x509.Certificate, fl *flight) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	c, err := f.fetch(ctx, address)
	if err != nil {
		c, err = nil, fmt.Errorf("fetch %s: %w", address, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.kept[address]; err != nil && k != nil && k.certificate != nil {
		// An intermediate that was right yesterday still verifies by its signature
		// and its own dates.
		c, err = k.certificate, nil
	}
	if child == nil || err == nil && child.CheckSignatureFrom(c) == nil {
		f.keep(address, c, err)
	}
	fl.certificate, fl.err = c, err
	delete(f.flights, address)
	close(fl.done)
}

// keep keeps an answer. Known names have their places; of the others the one goes that
// was not asked for the longest, failures first, so that a stranger's addresses do not
// drive out what everybody needs.
func (f *Fetcher) keep(address string, c *x509.Certificate, err error) {
	now := f.now()
	if f.kept[address] == nil && !f.known[address] {
		out, count := "", 0
		for a, o := range f.kept {
			if f.known[a] {
				continue
			}
			count++
			w := f.kept[out]
			switch {
			case w == nil, o.certificate == nil && w.certificate != nil:
				out = a
			case (o.certificate == nil) == (w.certificate == nil) && o.used.Before(w.used):
				out = a
			}
		}
		if count >= maxKept {
			delete(f.kept, out)
		}
	}
	f.kept[address] = &fetched{certificate: c, err: err, at: now, used: now}
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

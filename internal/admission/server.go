package admission

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/ortet/ortet/internal/admission/attest"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// Attestation verifies attested documents: see attest.Verifier.
type Attestation interface {
	Verify(ctx context.Context, document, nonce, from string) (attest.Document, error)
}

// Limits are what the server does at once, and how often.
type Limits struct {
	// Rate and Burst are of all requests, by the second; AddressRate and AddressBurst
	// of each address (of IPv6: of each network of 64 bits). A join is two requests. Once
	// half of Burst is used up, an address has as large a part of its own rate as that is
	// of Rate.
	Rate         float64
	Burst        int
	AddressRate  float64
	AddressBurst int
	// InFlight limits the concurrent requests, besides those to leave, which wait for a
	// drain: Leaves limits them. Most requests wait for one answer of Azure's together, so
	// a high limit is quicker than a low one. One address may have as large a part of
	// InFlight as AddressRate is of Rate.
	InFlight, Leaves int
	// Connections is how many are open at once; others wait to be taken. One address may
	// have as large a part of them as AddressRate is of Rate; what it opens beyond that is
	// closed; where half are taken, that part of its part.
	Connections int
}

// DefaultLimits let 1,000 nodes join in some seconds, on one core and in 100 MB.
func DefaultLimits() Limits {
	return Limits{Rate: 500, Burst: 1000, AddressRate: 50, AddressBurst: 200, InFlight: 512, Leaves: 256, Connections: 1024}
}

// Config is what a Server needs.
type Config struct {
	Directory Directory
	Cluster   Cluster
	Attest    Attestation
	// ClientCAs returns the PEM of the cluster's client authorities: Keys has it. nil takes
	// no certificates.
	ClientCAs func(context.Context) ([]byte, error)
	// Pools are the scale sets whose instances are admitted.
	Pools []fleet.ResourceID
	// ScaleSets reads canaries of Pools, whose instances are admitted while a capture works
	// on the pool; nil admits none.
	ScaleSets ScaleSets
	// CallbackTimeout is how long a node has to answer; 0 is 3 s. Dial reaches it; nil
	// is a net.Dialer's.
	CallbackTimeout time.Duration
	// CallbackPorts are those at which nodes are called back; none are all. A port that
	// only the machine's own programs can have keeps others from answering for it: a
	// Service's port (NodePort) leads to a pod on the machine's address too.
	CallbackPorts Ports
	Dial          func(ctx context.Context, network, address string) (net.Conn, error)
	Limits        Limits // zero is DefaultLimits
	// Evicted is called for a node that leaves since Azure evicts it; nil is allowed.
	Evicted func(context.Context, fleet.Member) error
	Log     *slog.Logger          // of what goes wrong beside decisions; nil discards
	Audit   *slog.Logger          // of decisions; nil is Log
	Metrics prometheus.Registerer // nil registers nowhere
	Now     func() time.Time      // nil is time.Now
	Random  io.Reader             // nil is crypto/rand's
	Jitter  func() float64        // of 0 to 1; nil is math/rand's
}

// A PortRange is from its first port to its last, both included.
type PortRange struct{ First, Last int }

// Ports are ranges of ports.
type Ports []PortRange

// Has reports whether a port is in one of the ranges; an empty list has all.
func (p Ports) Has(port int) bool {
	return len(p) == 0 || slices.ContainsFunc(p, func(r PortRange) bool { return r.First <= port && port <= r.Last })
}

// Server answers the paths of package wire. It is an http.Handler; Serve has the
// connections' part.
type Server struct {
	config     Config
	nonces     *nonces
	clientCAs  *authorities
	rates      *rates
	machines   *each[string] // by vmId, or by a certificate's node
	failures   *each[netip.Prefix]
	omissions  *omissions
	endFor     time.Duration
	drains     *few[string] // by node
	meters     *meters
	meanings   map[Reason]Meaning
	operations map[string]operation
}

// An operation is what a path does.
type operation struct {
	name   string
	most   int64 // bytes of its body
	share  *share
	within time.Duration
	handle func(context.Context, *request) (any, error)
}

// A request is what was asked, read wholly.
type request struct {
	http  *http.Request
	body  []byte
	facts *facts
	known func() // to be called once it is: see share.enter
}

const (
	maxShort = 4 << 10   // bytes of a request that is no report
	maxBoot  = 256 << 10 // bytes of a boot's report: what Cluster.Tell keeps
	// bodyFor is how long a request's body may take to arrive.
	bodyFor = 10 * time.Second
	// placeFor is how long a request waits for a place: less than a node waits for an
	// answer.
	placeFor = 5 * time.Second
	answerIn = 30 * time.Second
	maxLeave = 15 * time.Minute
	// reportsAtOnce is how many reports are read and kept at once, and leastReports what
	// an address may send of them in any case.
	reportsAtOnce, leastReports = 16, 2
	// leastAtOnce is what an address may have worked on of all else in any case.
	leastAtOnce = 16
	// maxDrains is how many requests to leave of one node are worked on at once: its
	// watcher's, an operator's and the shutdown's. Each may go on for a quarter of an
	// hour, and places are for all nodes.
	maxDrains = 4
)

// New makes a server.
func New(c Config) (*Server, error) {
	if c.Directory == nil || c.Cluster == nil || c.Attest == nil || len(c.Pools) == 0 {
		return nil, &fleet.Error{Op: "start the admission server", Kind: fleet.KindInvalid, Err: errors.New("no directory, cluster, attestation or scale set")}
	}
	c = c.withDefaults()
	m, err := newMeters(c.Metrics, c.Now)
	if err != nil {
		return nil, fmt.Errorf("register the admission server's metrics: %w", err)
	}
	s := &Server{
		config: c, meters: m, meanings: meanings(), omissions: newOmissions(), endFor: endFor, rates: newRates(c.Limits),
		machines:  newEach[string](rate.Every(machineEvery), machineBurst, maxMachines),
		drains:    newFew[string](maxDrains),
		failures:  newEach[netip.Prefix](rate.Limit(c.Limits.AddressRate/failedPart), max(c.Limits.AddressBurst/failedPart, leastModest), maxAddresses),
		nonces:    &nonces{key: c.Cluster.NonceKey, random: c.Random, now: c.Now, proven: map[[sha256.Size]byte]time.Time{}},
		clientCAs: &authorities{load: c.ClientCAs},
	}
	short, leaves, reports := newShare("short", c.Limits.InFlight, leastAtOnce, c.Limits), newShare("leave", c.Limits.Leaves, leastAtOnce, c.Limits), newShare("report", reportsAtOnce, leastReports, c.Limits)
	reports.first = true
	s.operations = map[string]operation{
		wire.NoncePath:   {"nonce", maxShort, short, answerIn, s.giveNonce},
		wire.JoinPath:    {"join", maxShort, short, answerIn, s.joins},
		wire.LeavePath:   {"leave", maxShort, leaves, maxLeave + answerIn, s.leave},
		wire.LeftPath:    {"left", maxShort, short, answerIn, s.left},
		wire.BackPath:    {"back", maxShort, short, answerIn, s.back},
		wire.VerdictPath: {"verdict", wire.MaxVerdict, reports, answerIn, s.verdict},
		wire.BootPath:    {"boot", maxBoot, reports, answerIn, s.boot},
	}
	return s, nil
}

func (c Config) withDefaults() Config {
	if c.Limits == (Limits{}) {
		c.Limits = DefaultLimits()
	}
	if c.CallbackTimeout <= 0 {
		c.CallbackTimeout = callbackFor
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.ClientCAs == nil {
		c.ClientCAs = func(context.Context) ([]byte, error) { return nil, errors.New("client certificates are not taken") }
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Audit = cmp.Or(c.Audit, c.Log)
	if c.Evicted == nil {
		c.Evicted = func(context.Context, fleet.Member) error { return nil }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Jitter == nil {
		c.Jitter = mathrand.Float64
	}
	return c
}

// ServeHTTP answers a request and writes its line of the audit log.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := s.config.Now()
	f := &facts{operation: "other", remote: r.RemoteAddr}
	answer, err := s.decide(w, r, f)
	if err == nil {
		s.conclude(r.Context(), f, nil, began)
		write(w, http.StatusOK, answer, 0)
		return
	}
	refused := refusalOf(err)
	meaning, known := s.meanings[refused.reason]
	if !known {
		meaning = s.meanings[Internal]
	}
	s.conclude(r.Context(), f, refused, began)
	told := wire.Refusal{Reason: string(meaning.Reason), Message: meaning.Told, Final: meaning.Final}
	after := refused.wait(meaning.Status, s.config.Jitter)
	told.After = int(after.Round(time.Second).Seconds())
	write(w, meaning.Status, told, told.After)
}

// conclude counts a decision, and writes it down. What is granted, or refused to who
// had proven who it is, always has its line; what anybody can cause has as many as fit.
func (s *Server) conclude(ctx context.Context, f *facts, refused *refusal, began time.Time) {
	reason, cause := Granted, error(nil)
	if refused != nil {
		reason, cause = refused.reason, refused.err
	}
	now := s.config.Now()
	took := now.Sub(began)
	s.meters.decisions.WithLabelValues(f.operation, string(reason)).Inc()
	s.meters.took.WithLabelValues(f.operation).Observe(took.Seconds())
	if reason == Granted && f.operation == "nonce" {
		return // who has a nonce has nothing yet
	}
	omitted := 0
	if reason != Granted && (!f.proven || reason == RateLimited) {
		var tell bool
		if tell, omitted = s.omissions.take(omissionKey{f.from, reason}, now); !tell {
			return
		}
	}
	s.audit(ctx, f, reason, cause, took, omitted)
}

// decide is the whole way of a request.
func (s *Server) decide(w http.ResponseWriter, r *http.Request, f *facts) (any, error) {
	f.from = networkOf(remoteOf(r))
	if !s.rates.take(remoteOf(r), s.config.Now()) {
		return nil, refuse(RateLimited, errors.New("too many requests"))
	}
	op, ok := s.operations[r.URL.Path]
	if !ok {
		return nil, refuse(NotFound, fmt.Errorf("path %.100q", r.URL.Path))
	}
	f.operation = op.name
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, refuse(MethodNotAllowed, fmt.Errorf("method %.20q", r.Method))
	}
	if !isJSON(r.Header.Get("Content-Type")) {
		return nil, refuse(NotJSON, fmt.Errorf("content type %.100q", r.Header.Get("Content-Type")))
	}
	if r.ContentLength > op.most {
		return nil, refuse(TooLarge, fmt.Errorf("%d bytes, more than %d", r.ContentLength, op.most))
	}
	var body []byte
	if !op.share.first { // who is slow does not hold a place
		var err error
		if body, err = s.read(w, r, op.most); err != nil {
			return nil, err
		}
	}
	leave, known, err := op.share.enter(r.Context(), f.from)
	if err != nil {
		return nil, err
	}
	defer leave()
	gauge := s.meters.inFlight.WithLabelValues(op.share.name)
	gauge.Inc()
	defer gauge.Dec()
	if op.share.first {
		if body, err = s.read(w, r, op.most); err != nil {
			return nil, err
		}
	}
	control := http.NewResponseController(w)
	if err := control.SetWriteDeadline(time.Now().Add(op.within + answerIn)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("set the time to answer in: %w", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), op.within)
	defer cancel()
	return op.handle(ctx, &request{http: r, body: body, facts: f, known: known})
}

// read takes a body, of bounded size and within bounded time.
func (s *Server) read(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(bodyFor)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("set the time to read in: %w", err)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refuse(TooLarge, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refuse(TooSlow, err)
	case err != nil:
		return nil, refuse(Canceled, err)
	}
	// What is worked on now may take longer than a body may.
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("unset the time to read in: %w", err)
	}
	return body, nil
}

func (s *Server) giveNonce(ctx context.Context, r *request) (any, error) {
	if _, err := parse[struct{}](r.body); err != nil {
		return nil, err
	}
	return s.nonces.give(ctx)
}

func (s *Server) joins(ctx context.Context, r *request) (any, error) {
	body, err := parse[wire.JoinRequest](r.body)
	if err != nil {
		return nil, err
	}
	who, err := s.byProof(ctx, r.http, r.body, r.facts)
	if err != nil {
		return nil, err
	}
	// It may leave still: an instance is Deleting throughout its notice of a Terminate.
	if strings.EqualFold(who.member.ProvisioningState, "Deleting") {
		return nil, refuse(InstanceGone, errors.New("the instance is being deleted"))
	}
	return s.join(ctx, who, body)
}

func parse[T any](body []byte) (T, error) {
	v, err := wire.ParseAdmission[T](body)
	if err != nil {
		return v, refuse(BadRequest, err)
	}
	return v, nil
}

// remoteOf is the other end of the connection. What a request claims about it is ignored.
func remoteOf(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr()
}

func isJSON(contentType string) bool {
	kind, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "application/json" {
		return false
	}
	charset, said := parameters["charset"]
	return len(parameters) == 0 || len(parameters) == 1 && said && (charset == "utf-8" || charset == "UTF-8")
}

// write answers. A node that hung up gets no answer.
func write(w http.ResponseWriter, status int, answer any, after int) {
	text, err := json.Marshal(answer)
	if err != nil { // of our own types, which can all be marshalled
		status, text = http.StatusInternalServerError, []byte(`{"reason":"Internal","message":"the server failed"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	if after > 0 {
		h.Set("Retry-After", strconv.Itoa(after))
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // see above
}

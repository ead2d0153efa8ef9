package kubesim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// maxBody is the API server's bound on a request's body, in bytes.
const maxBody = 3 << 20

// Server is the API server. Its zero value is a new cluster, where everybody may
// do everything. Its fields may be changed while no request is under way. The
// hooks are called without the lock, on the goroutine of the request, so they may
// use the server.
type Server struct {
	// Users says what each user may do. Who is not in it may do nothing. nil
	// lets everybody do everything.
	Users map[string][]Grant
	// Machines serves Cluster API's Machines, under cluster.x-k8s.io/v1beta1.
	Machines bool
	// Log gives what a pod's container printed until now; nil for one that has
	// not begun. It may be nil.
	Log func(namespace, pod string) []byte
	// OnRequest hears of every request once it is served. It may be nil.
	OnRequest func(Request)
	// Deleting hears of every deletion of a pod that a request brings about, and
	// of one that shortens the time that is left to it. It may be nil.
	Deleting func(Deletion)
	// Ends plays the kubelets: it says how long a pod that is bound to a node
	// takes to end from now, given its grace period; negative means for ever.
	// It is asked when a deletion begins and when one is shortened, and the
	// earlier end counts; the pod goes when the time has come, as seen at the
	// next look. nil leaves it until Remove. The pod is the server's own: do not
	// change it.
	Ends func(pod *corev1.Pod, grace time.Duration) time.Duration

	// Groups says what the members of each group may do, beside Users.
	Groups map[string][]Grant
	// Controllers does what a cluster's controllers and scheduler do: ReplicaSets
	// fill up, pods are bound, and a Node whose Lease is not renewed becomes Unknown.
	// See workloads.go.
	Controllers bool
	// Sign gives the certificate of a new certificate request that the cluster
	// approves by itself, or nil. It is called under the lock: it must not use the
	// server. It may be nil.
	Sign func(*certificatesv1.CertificateSigningRequest) []byte
	// AdmitPod refuses a new pod by its error, as a quota or Pod Security does; nil admits all.
	AdmitPod func(pod *corev1.Pod) error
	// KubeletLog asks a pod's kubelet for a container's log; query is the request's.
	// It comes before Log. It may be nil.
	KubeletLog func(ctx context.Context, pod *corev1.Pod, container string, query url.Values) (io.ReadCloser, error)

	mu         sync.Mutex
	tables     map[string]*table // by resource
	revision   uint64            // resourceVersion of the last write
	made       uint64            // UIDs
	generated  uint64            // names
	snapshots  map[snapshotKey]snapshot
	daemonPods map[daemonOn]string  // keys of pods
	due        []due                // by time
	deletions  []Deletion           // since the lock was taken
	written    chan struct{}        // closes at the next write; nil while no watch waits
	heartbeats map[string]time.Time // when each Node was heard of last
	reconciles bool                 // workloads are to be reconciled
}

// A Deletion is one pod's.
type Deletion struct {
	User     string
	Eviction bool          // by the eviction subresource
	Grace    time.Duration // that it gets from now
	Pod      *corev1.Pod   // as it was; the server's own: do not change it

	gone    bool // it went at once
	unasked bool // no request asked for it
}

// due is something that the cluster does by itself at its time.
type due struct {
	at time.Time
	do func()
}

// begin takes the lock, after which what was due has happened.
func (s *Server) begin() {
	s.mu.Lock()
	begun := false
	defer func() {
		if !begun {
			s.mu.Unlock() // a panic must not stop the cluster
		}
	}()
	s.init()
	for len(s.due) > 0 && !time.Now().Before(s.due[0].at) {
		first := s.due[0]
		s.due = s.due[1:]
		first.do()
	}
	begun = true
}

// end gives the lock back, and tells of the deletions.
func (s *Server) end() {
	for {
		deletions := s.deletions
		s.deletions = nil
		s.mu.Unlock()
		if len(deletions) == 0 {
			return
		}
		ends := make([]time.Duration, len(deletions))
		for i, d := range deletions {
			if s.Deleting != nil && !d.unasked {
				s.Deleting(d)
			}
			ends[i] = -1
			if s.Ends != nil && !d.gone {
				ends[i] = s.Ends(d.Pod, d.Grace)
			}
		}
		s.mu.Lock()
		for i, d := range deletions {
			if ends[i] >= 0 {
				s.endsAfter(d.Pod, ends[i])
			}
		}
	}
}

// after does something later. The caller holds the lock.
func (s *Server) after(d time.Duration, do func()) {
	at := time.Now().Add(d)
	i := len(s.due)
	for i > 0 && s.due[i-1].at.After(at) {
		i--
	}
	s.due = append(s.due, due{})
	copy(s.due[i+1:], s.due[i:])
	s.due[i] = due{at, do}
}

// Host is where the server is said to be.
const Host = "http://kubesim.invalid"

// Config is how a user reaches the server: in process, without a limit on
// requests. Its Transport may be wrapped, for faults.
func (s *Server) Config(user string) *rest.Config {
	return &rest.Config{Host: Host, Transport: login{s, user}, QPS: -1}
}

// login is the server as one user reaches it.
type login struct {
	server *Server
	user   string
}

// A User is who sends a request.
type User struct {
	Name   string
	Groups []string
}

func (l login) RoundTrip(request *http.Request) (*http.Response, error) {
	return l.server.roundTrip(request, User{Name: l.user})
}

// CancelRequest is what an http.Client with a timeout calls; the request's context
// has ended by then.
func (l login) CancelRequest(*http.Request) {}

// bearer returns the user whom a bearer token names: the token is the name.
func bearer(request *http.Request) string {
	user, ok := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return "system:anonymous"
	}
	return user
}

// RoundTrip implements http.RoundTripper. The bearer token is the user's name.
func (s *Server) RoundTrip(request *http.Request) (*http.Response, error) {
	return s.roundTrip(request, User{Name: bearer(request)})
}

func (s *Server) roundTrip(request *http.Request, user User) (*http.Response, error) {
	body, err := drained(request)
	if err != nil {
		return nil, err
	}
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	return s.serve(request, user, body).response(request), nil
}

// drained reads and closes the request's body.
func drained(request *http.Request) (body []byte, err error) {
	if request.Body == nil {
		return nil, nil
	}
	if n := request.ContentLength; n > 0 && n <= maxBody {
		body = make([]byte, n)
		_, err = io.ReadFull(request.Body, body)
	} else {
		body, err = io.ReadAll(io.LimitReader(request.Body, maxBody+1))
	}
	return body, errors.Join(err, request.Body.Close())
}

// ServeHTTP implements http.Handler. The bearer token is the user's name.
func (s *Server) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	s.ServeUser(w, request, User{Name: bearer(request)})
}

// ServeUser serves a request of a user whom the caller has authenticated.
func (s *Server) ServeUser(w http.ResponseWriter, request *http.Request, user User) {
	body, err := drained(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a := s.serve(request, user, body)
	for key, values := range a.header() {
		w.Header()[key] = values
	}
	w.WriteHeader(a.code)
	// What fails here is the client's connection, which it sees itself.
	if a.stream == nil {
		_, _ = w.Write(a.body)
		return
	}
	defer a.stream.Close()
	_ = http.NewResponseController(w).Flush() // a watch is open before its first event
	_, _ = io.Copy(flushed{w}, a.stream)
}

// flushed sends what is written at once, as a watch and a followed log need it.
type flushed struct{ http.ResponseWriter }

func (f flushed) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	return n, errors.Join(err, http.NewResponseController(f.ResponseWriter).Flush())
}

// Tick does what the cluster does by itself and is due, for those who serve in real
// time: without requests nothing else would.
func (s *Server) Tick() {
	s.begin()
	s.end()
}

// An answer is what goes back.
type answer struct {
	code        int
	contentType string
	body        []byte
	stream      io.ReadCloser // instead of body: it goes on while it is read
	retryAfter  int           // seconds
	// later gives the answer instead, once the lock is given back.
	later func() (answer, error)
}

func (a answer) header() http.Header {
	header := http.Header{"Content-Type": {a.contentType}, "Date": {now().UTC().Format(http.TimeFormat)}}
	if a.retryAfter > 0 {
		header["Retry-After"] = []string{strconv.Itoa(a.retryAfter)}
	}
	return header
}

func (a answer) response(request *http.Request) *http.Response {
	if a.stream != nil {
		response := answer{code: a.code, contentType: a.contentType}.response(request)
		response.Body, response.ContentLength = a.stream, -1
		return response
	}
	return &http.Response{
		Status: strconv.Itoa(a.code) + " " + http.StatusText(a.code), StatusCode: a.code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.header(), Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: request,
	}
}

// Refuse is the answer by which the API server refuses a request, in the form
// that the request accepts: for whoever stands before the server and plays
// faults.
func Refuse(request *http.Request, err error) *http.Response {
	return refusal(accepted(request.Header.Get("Accept"), true), err).response(request)
}

// wordsError is what the API server says, in its own way of writing errors.
type wordsError string

func (w wordsError) Error() string { return string(w) }

func words(format string, values ...any) error { return wordsError(fmt.Sprintf(format, values...)) }

// refusal writes an error as the API server does.
func refusal(accept string, err error) answer {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error(),
		}}
	}
	says := status.Status()
	a := said(accept, int(says.Code), schema.GroupVersionKind{Version: "v1", Kind: "Status"}, &says)
	if says.Details != nil {
		a.retryAfter = int(says.Details.RetryAfterSeconds)
	}
	return a
}

// serve is the whole of a request.
func (s *Server) serve(request *http.Request, user User, body []byte) answer {
	c := s.parse(request, user, body)
	a, err := s.answer(c)
	if err == nil && a.later != nil {
		a, err = a.later()
	}
	if err != nil {
		a = refusal(c.accept, err)
	}
	if s.OnRequest != nil {
		c.Status = a.code
		s.OnRequest(c.Request)
	}
	return a
}

func (s *Server) answer(c *call) (answer, error) {
	if len(c.body) > maxBody {
		return answer{}, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	s.begin()
	defer s.end()
	if c.Resource == "" {
		return s.discover(c)
	}
	if err := s.authorize(c); err != nil {
		return answer{}, err
	}
	if c.DryRun && c.Verb != "create" {
		return answer{}, apierrors.NewBadRequest("this server knows dry runs of creations alone")
	}
	if c.Group == "authorization.k8s.io" {
		return s.review(c)
	}
	t := s.tables[c.Resource]
	if t == nil || t.kind.group != c.Group || t.kind.version != c.version || t.kind.custom && !s.Machines ||
		t.kind.namespaced && c.Namespace == "" && c.Verb != "list" && c.Verb != "watch" {
		return answer{}, c.notServed()
	}
	c.kind = t.kind
	c.table = asTable(c.header.Get("Accept"))
	if c.accept = accepted(c.header.Get("Accept"), !t.kind.custom && c.Verb != "watch"); c.accept == "" {
		return answer{}, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, c.Verb, t.kind.groupResource(), c.Name,
			"only the following media types are accepted: "+contentJSON+", "+contentProto, 0, false)
	}
	switch {
	case c.Subresource == "", c.Subresource == "status" && t.kind.status && c.changes(), c.Resource == "certificatesigningrequests" && c.Subresource == "approval" && c.changes():
		return s.stored(c, t)
	case c.Resource == "pods" && c.Subresource == "eviction" && c.Verb == "create":
		return s.evict(c, t)
	case c.Resource == "pods" && c.Subresource == "log" && c.Verb == "get":
		return s.log(c, t)
	}
	return answer{}, c.notServed()
}

// changes reports whether the request is of those that a status has.
func (c *call) changes() bool { return c.Verb == "get" || c.Verb == "update" || c.Verb == "patch" }

// stored serves what every kind has.
func (s *Server) stored(c *call, t *table) (answer, error) {
	if c.Name == "" && (c.Verb == "update" || c.Verb == "patch" || c.Verb == "delete") {
		return answer{}, apierrors.NewMethodNotSupported(t.kind.groupResource(), c.Verb)
	}
	if err := s.restrictNode(c, t); err != nil {
		return answer{}, err
	}
	switch c.Verb {
	case "get":
		return s.get(c, t)
	case "list":
		return s.list(c, t)
	case "watch":
		return s.watch(c, t)
	case "create":
		return s.create(c, t)
	case "update":
		return s.update(c, t)
	case "patch":
		return s.patch(c, t)
	case "delete":
		return s.delete(c, t)
	}
	return answer{}, apierrors.NewMethodNotSupported(t.kind.groupResource(), c.Verb)
}

// notServed is the answer under an address that there is not.
func (c *call) notServed() error {
	what := c.Path
	if what == "" {
		what = strings.TrimSuffix(c.Resource+"/"+c.Subresource, "/")
		if c.Group != "" {
			what += " of " + c.Group
		}
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the API server in memory does not serve " + what + " (" + c.Verb + ")",
	}}
}

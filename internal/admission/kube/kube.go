package kube

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/cluster"
	"github.com/ortet/ortet/internal/cluster/apierror"
	"github.com/ortet/ortet/internal/fleet"
)

// DefaultNamespace is where Ortet keeps its own objects.
const DefaultNamespace = "ortet-system"

// DefaultTokenTTL is how long a token is good for: long enough for the rest of a slow
// boot, since the kubelet asks with it once it starts.
const DefaultTokenTTL = 10 * time.Minute

// requestTimeout bounds one request, where the rest.Config does not.
const requestTimeout = 30 * time.Second

// fieldManager names Ortet in managedFields.
const fieldManager = "ortet"

// Config is what a Cluster needs. REST, Server and CA are required, and Drainer for
// Leave.
type Config struct {
	// REST is how to reach the API server. It is copied. Content type, and where they are
	// zero timeout, user agent and the limit on requests, are set here.
	REST *rest.Config
	// Namespace holds Ortet's own objects; "" means DefaultNamespace. The keys lie in
	// KeysNamespace of it.
	Namespace string
	// Logger gets what is not an error for the caller; nil discards.
	Logger *slog.Logger
	// Identity names an object's maker for people: "host/pid"; "" means "ortet".
	Identity string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// TokenTTL is how long a token is good for; 0 means DefaultTokenTTL.
	TokenTTL time.Duration
	// Server is the API server's address, as nodes reach it.
	Server string
	// Supervisor is that of k3s's or RKE2's server; "" means Server.
	Supervisor string
	// CA is the PEM of who signs the API server's certificate: for k3s and RKE2
	// byte for byte what the supervisor serves at /cacerts, which the ConfigMap
	// kube-root-ca.crt of every namespace holds too.
	CA []byte
	// Drainer evicts the pods of a node that leaves.
	Drainer cluster.Drainer
	// Leases shows whether a capture works on a pool: those of the captures' namespace.
	Leases cluster.Leases
	// Metrics gets the approver's figures; nil registers nowhere.
	Metrics prometheus.Registerer
}

// Cluster is an admission.Cluster on an API server. It may be used from many
// goroutines, and beside others of its kind.
type Cluster struct {
	client     kubernetes.Interface
	metadata   metadata.Interface
	namespace  string
	log        *slog.Logger
	identity   string
	now        func() time.Time
	ttl        time.Duration
	server     string
	supervisor string
	ca         []byte
	caHash     string
	drainer    cluster.Drainer
	leases     cluster.Leases
	names      *names
	absences   *absences
	decisions  *prometheus.CounterVec
	watched    atomic.Pointer[watched] // while Run runs
	seal       atomic.Pointer[seal]    // once it was read
	dropped    atomic.Bool             // no keys of an earlier version are left
}

var (
	_ admission.Cluster    = (*Cluster)(nil)
	_ admission.Admissions = (*Cluster)(nil)
	_ admission.Keys       = (*Cluster)(nil)
)

// New makes a Cluster. It sends no request.
func New(c Config) (*Cluster, error) {
	fail := func(err error) (*Cluster, error) {
		return nil, &fleet.Error{Op: "configure Kubernetes client", Kind: fleet.KindInvalid, Err: err}
	}
	if c.REST == nil {
		return fail(errors.New("no REST configuration"))
	}
	hash, err := hashCA(c.CA)
	if err != nil {
		return fail(fmt.Errorf("the cluster's certificate authority: %w", err))
	}
	c.Supervisor = cmp.Or(c.Supervisor, c.Server)
	for _, address := range []string{c.Server, c.Supervisor} {
		if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.Host == "" {
			return fail(fmt.Errorf("the address %q at which nodes reach the API server, want https://HOST:PORT", address))
		}
	}
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Identity = cmp.Or(c.Identity, "ortet")
	if c.Now == nil {
		c.Now = time.Now
	}
	c.TokenTTL = cmp.Or(c.TokenTTL, DefaultTokenTTL)
	config := rest.CopyConfig(c.REST)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if config.QPS == 0 {
		// What nodes may ask is bounded before it gets here, and the API server has
		// its own fairness.
		config.QPS = -1
	}
	config.Timeout = cmp.Or(config.Timeout, requestTimeout)
	config.UserAgent = cmp.Or(config.UserAgent, "ortet")
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fail(err)
	}
	lean, err := metadata.NewForConfig(metadata.ConfigFor(config))
	if err != nil {
		return fail(err)
	}
	out := &Cluster{
		client: client, metadata: lean, namespace: c.Namespace, log: c.Logger, identity: c.Identity, now: c.Now, ttl: c.TokenTTL,
		server: c.Server, supervisor: c.Supervisor, ca: bytes.Clone(c.CA), caHash: hash, drainer: c.Drainer, leases: c.Leases,
	}
	out.names, out.absences = &names{cluster: out}, newAbsences()
	if out.decisions, err = newDecisions(c.Metrics); err != nil {
		return fail(err)
	}
	return out, nil
}

// hashCA is what k3s and RKE2 pin in a token: of one certificate the SHA-256 of the
// PEM as it is served, of a bundle that of its root's DER. Source: k3s,
// pkg/clientaccess/token.go, hashCA.
func hashCA(bundle []byte) (string, error) {
	var certificates []*x509.Certificate
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return "", err
		}
		certificates = append(certificates, certificate)
	}
	if len(certificates) == 0 {
		return "", errors.New("no certificate in PEM")
	}
	hashed := bundle
	if len(certificates) > 1 {
		roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
		for _, c := range certificates[1:] {
			if len(c.AuthorityKeyId) == 0 || bytes.Equal(c.AuthorityKeyId, c.SubjectKeyId) {
				roots.AddCert(c)
			} else {
				intermediates.AddCert(c)
			}
		}
		// k3s too hashes the bundle where it finds no chain.
		if chains, err := certificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates}); err == nil {
			hashed = chains[0][len(chains[0])-1].Raw
		}
	}
	sum := sha256.Sum256(hashed)
	return hex.EncodeToString(sum[:]), nil
}

// Labels and annotations of what Ortet keeps.
const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "ortet"
	labelPurpose   = "ortet.io/purpose"

	annotationMadeBy       = "ortet.io/made-by"
	annotationNode         = "ortet.io/node"
	annotationVMID         = "ortet.io/vm-id"
	annotationInstance     = "ortet.io/instance"
	annotationPool         = "ortet.io/pool"
	annotationDistribution = "ortet.io/distribution"
)

// ours is the metadata of an object of ours.
func (c *Cluster) ours(namespace, name, purpose string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: namespace,
		Labels:      map[string]string{labelManagedBy: managedBy, labelPurpose: purpose},
		Annotations: map[string]string{annotationMadeBy: c.identity},
	}
}

// fail makes a *fleet.Error of what client-go gave; nil for nil.
func fail(ctx context.Context, op, on string, err error) error {
	return apierror.Request{Op: op, On: on, Grant: "grant it: docs/reference/kubernetes-permissions.md lists what the admission server needs"}.Error(ctx, err)
}

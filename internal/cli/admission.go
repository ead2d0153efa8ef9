package cli

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/attest"
	admissionkube "github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/fleet"
)

// admissionFlags are those of ortet admission.
type admissionFlags struct {
	listen                string
	names                 []string
	pools, keep           []string
	apiServer, ca         string
	supervisor            string
	callback, ttl, reap   time.Duration
	metrics, health       string
	audit                 string
	roots, intermediates  string
	domain                string
	callbackPort          string
	rate, perAddress      float64
	inFlight, connections int
	elect, printHash      bool
}

func newAdmission(o *options) *cobra.Command {
	var f admissionFlags
	limits := admission.DefaultLimits()
	c := &cobra.Command{
		Use:   "admission",
		Short: "Run the server that admits machines of scale sets to the cluster",
		Long: `admission runs in the cluster, or on a k3s server. Machines of the scale sets that
--pool names prove their identity by documents that Azure signs, and get a bootstrap
token that is valid for their own Node's name only. The server also:

  - approves kubelet certificates by the same proof
  - drains nodes that leave
  - deletes the Nodes of machines that no longer exist in Azure
  - writes every decision to the audit log

Machines trust the server by the hash of its CA, which --print-ca-hash prints.
docs/reference/admission.md explains where to put it, and each reason for a refusal.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.printHash {
				return o.printAdmissionHash(cmd.Context(), f)
			}
			if err := f.check(); err != nil {
				return err
			}
			return o.runAdmission(cmd.Context(), f)
		},
	}
	p := c.Flags()
	p.StringVar(&f.listen, "listen", ":8443", "listen `ADDRESS` for machines, TLS")
	p.StringArrayVar(&f.names, "tls-san", nil, "DNS `NAME` or address by which machines reach the server, for its certificate; repeatable; required")
	p.StringArrayVar(&f.pools, "pool", nil, "ARM `ID` of a scale set whose machines are admitted; repeatable; required")
	p.StringVar(&f.apiServer, "api-server", "", "`ADDRESS` by which nodes reach the API server, https://HOST:PORT (default: from kube-public/cluster-info, or the kubeconfig)")
	p.StringVar(&f.ca, "ca", "", "PEM `FILE` of the API server's CA (default: from the ConfigMap kube-root-ca.crt, or the kubeconfig)")
	p.StringVar(&f.supervisor, "k3s-server", "", "`ADDRESS` by which nodes reach the supervisor of k3s or RKE2 (default: --api-server; RKE2: its port 9345)")
	durationVar(p, &f.callback, "callback-timeout", 3*time.Second, "time limit for a machine to answer the callback")
	p.StringVar(&f.callbackPort, "callback-port", strconv.Itoa(admission.DefaultCallbackPort), "`PORTS` for callbacks to machines, PORT or FIRST-LAST, comma-separated; below 1024, because only root can listen there")
	durationVar(p, &f.ttl, "token-ttl", admissionkube.DefaultTokenTTL, "lifetime of a token, unless its Node is Ready earlier")
	durationVar(p, &f.reap, "reap-interval", admission.DefaultReapInterval, "interval between scans for orphaned Nodes, whose machine no longer exists")
	p.StringArrayVar(&f.keep, "keep-capacity", nil, "ARM `ID` of a Spot scale set whose capacity is restored after evictions; repeatable")
	p.StringVar(&f.metrics, "metrics-address", ":8080", "listen `ADDRESS` for metrics; 0 disables it")
	p.StringVar(&f.health, "health-address", ":8081", "listen `ADDRESS` for /healthz and /readyz; 0 disables it")
	p.StringVar(&f.audit, "audit-log", "-", "audit log `FILE`, appended to, one JSON object per line; - is standard output")
	p.StringVar(&f.roots, "attestation-roots", "", "PEM `FILE` of additional root CAs for the metadata service's certificates, besides Microsoft's and DigiCert's")
	p.StringVar(&f.intermediates, "attestation-intermediates", "", "PEM `FILE` of intermediate certificates, if the server cannot fetch them from Microsoft")
	p.StringVar(&f.domain, "attestation-domain", "", "`DOMAIN` of the trusted metadata service: metadata.azure.com, .us or .cn (default: by the credentials' cloud)")
	p.Float64Var(&f.rate, "rate", limits.Rate, "limit of requests per second")
	p.Float64Var(&f.perAddress, "rate-per-address", limits.AddressRate, "limit of requests per second per client address; its ratio to --rate also applies to --max-in-flight and --max-connections")
	p.IntVar(&f.inFlight, "max-in-flight", limits.InFlight, "limit of requests in progress")
	p.IntVar(&f.connections, "max-connections", limits.Connections, "limit of open connections")
	p.BoolVar(&f.elect, "leader-elect", true, "approve certificates and delete orphaned Nodes only while holding the Lease "+admissionkube.LeadName)
	p.BoolVar(&f.printHash, "print-ca-hash", false, "print the hash of the server's CA and exit; create the CA if missing")
	c.AddCommand(newAdmissionRevoke(o))
	return c
}

// check tells all that is wrong at once.
func (f admissionFlags) check() error {
	var all []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			all = append(all, usagef(format, args...))
		}
	}
	wrong(len(f.pools) == 0, "--pool is required: the ARM id of a scale set whose machines are to join")
	wrong(len(f.names) == 0, "--tls-san is required: the name or address by which machines reach this server")
	for _, list := range [][]string{f.pools, f.keep} {
		_, err := scaleSets(list)
		all = append(all, err)
	}
	for _, address := range []string{f.apiServer, f.supervisor} {
		u, err := url.Parse(address)
		wrong(address != "" && (err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != ""), "the address %q: want https://HOST:PORT", address)
	}
	_, err := f.callbackPorts()
	all = append(all, err)
	wrong(f.callback < 100*time.Millisecond || f.callback > 20*time.Second, "--callback-timeout %s: want 100ms to 20s", durationText(f.callback))
	wrong(f.ttl < time.Minute || f.ttl > 24*time.Hour, "--token-ttl %s: want 1m to 24h", durationText(f.ttl))
	wrong(f.reap < 5*time.Second || f.reap > 24*time.Hour, "--reap-interval %s: want 5s to 24h", durationText(f.reap))
	wrong(f.rate < 1 || f.perAddress < 1 || f.inFlight < 1 || f.connections < 1, "limits below 1")
	wrong(f.domain != "" && !slices.Contains([]attest.Cloud{attest.Public, attest.Government, attest.China}, attest.Cloud(f.domain)),
		"--attestation-domain %q: want %s, %s or %s", f.domain, attest.Public, attest.Government, attest.China)
	return errors.Join(all...)
}

// callbackPorts reads --callback-port.
func (f admissionFlags) callbackPorts() (admission.Ports, error) {
	var all admission.Ports
	for text := range strings.SplitSeq(f.callbackPort, ",") {
		first, last, some := strings.Cut(strings.TrimSpace(text), "-")
		if !some {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA != nil || errB != nil || a < 1 || b < a {
			return nil, usagef("--callback-port %q: want ports, or FIRST-LAST, with commas between", f.callbackPort)
		}
		all = append(all, admission.PortRange{First: int(a), Last: int(b)})
	}
	return all, nil
}

func (f admissionFlags) limits() admission.Limits {
	l := admission.DefaultLimits()
	l.Rate, l.AddressRate, l.InFlight, l.Connections = f.rate, f.perAddress, f.inFlight, f.connections
	l.Burst, l.AddressBurst = max(2*int(f.rate), 1), max(4*int(f.perAddress), 1)
	return l
}

// verifier is what believes attested documents, by what it fetches.
func (f admissionFlags) verifier(azure cloud.Configuration, issuers attest.Issuers) (*attest.Verifier, error) {
	v := &attest.Verifier{Cloud: attest.Cloud(f.domain), Roots: attest.Roots(), Issuers: issuers, Now: time.Now}
	if f.domain == "" {
		switch u, _ := url.Parse(azure.ActiveDirectoryAuthorityHost); { // a wrong one is the public cloud's
		case u == nil:
		case strings.HasSuffix(u.Hostname(), ".us"):
			v.Cloud = attest.Government
		case strings.HasSuffix(u.Hostname(), ".cn"):
			v.Cloud = attest.China
		}
	}
	if f.roots != "" {
		certificates, err := readCertificates(f.roots)
		if err != nil {
			return nil, err
		}
		for _, c := range certificates {
			v.Roots.AddCert(c)
		}
	}
	if f.intermediates != "" {
		certificates, err := readCertificates(f.intermediates)
		if err != nil {
			return nil, err
		}
		v.Intermediates = certificates
	}
	return v, nil
}

// readCertificates reads a PEM `FILE` of certificates.
func readCertificates(file string) ([]*x509.Certificate, error) {
	rest, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read %s: there is no certificate in it", file)
	}
	return all, nil
}

// openAudit opens the audit log, which close ends.
func (o *options) openAudit(file string) (*slog.Logger, func() error, error) {
	out, end := o.process.Out, func() error { return nil } // it is the caller's
	if file != "-" {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, fmt.Errorf("open the audit log: %w", err)
		}
		out, end = f, f.Close
	}
	return slog.New(slog.NewJSONHandler(out, nil)), end, nil
}

// printAdmissionHash prints what machines know of the server beforehand.
func (o *options) printAdmissionHash(ctx context.Context, f admissionFlags) error {
	keys, err := o.admissionRecords(ctx, f)
	if err != nil {
		return err
	}
	c, err := admission.NewCertificates(ctx, keys, nil, time.Now, o.log)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.process.Out, c.Hash())
	return err
}

// admissionRecords is the server's part of the cluster, where no node is told how it
// reaches the API server.
func (o *options) admissionRecords(ctx context.Context, f admissionFlags) (*admissionkube.Cluster, error) {
	config, err := o.kubernetes()
	if err != nil {
		return nil, err
	}
	if u, _, err := rest.DefaultServerUrlFor(config); err == nil && f.apiServer == "" {
		f.apiServer = u.Scheme + "://" + u.Host
	}
	k, err := o.admissionCluster(ctx, config, f)
	if err != nil {
		return nil, err
	}
	return admissionkube.New(k)
}

// listenOn listens, and says where if that is not told by the address itself.
func (o *options) listenOn(ctx context.Context, what, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &fleet.Error{Op: "listen for " + what, Resource: address, Err: err, Remedy: "give another address"}
	}
	o.log.InfoContext(ctx, "listening", "for", what, "address", l.Addr().String())
	return l, nil
}

var errNoAddress = errors.New("neither kube-public/cluster-info nor the kubeconfig has an address by which nodes reach the API server")

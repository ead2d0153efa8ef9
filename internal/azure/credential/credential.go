// Package credential finds out who Ortet is in Azure and where Azure is: from an
// azure.json as cloud providers read it, from workload identity, from the
// environment, or from the Azure CLI.
//
// The environment is the caller's to read: it gives a look-up function.
package credential

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/ortet/ortet/internal/fleet"
)

// DefaultFile is where cloud providers keep their azure.json.
const DefaultFile = "/etc/kubernetes/azure.json"

// maxFile bounds every file that is read here.
const maxFile = 1 << 20

// A Config says where to look.
type Config struct {
	// File is an azure.json to use and no other source. "" tries, in this
	// order, workload identity, the environment's service principal,
	// DefaultFile if there is one, and the Azure CLI.
	File string
	// DefaultFile is DefaultFile where "".
	DefaultFile string
	// Getenv looks a variable of the environment up; nil means that there are none.
	Getenv func(name string) string
	// EnvironmentFile is the endpoint file of an AzureStackCloud. "" takes
	// AZURE_ENVIRONMENT_FILEPATH, or azurestackcloud.json beside File.
	EnvironmentFile string
	// CAFile has certificates, in PEM, to trust beside the system's.
	CAFile string
	// Transport carries all requests instead of one made here. CAFile must
	// then be "".
	Transport policy.Transporter
	// Wrap puts a layer around the transport that is made here; nil for none.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Run runs the Azure CLI; nil runs it. Tests replace it.
	Run func(ctx context.Context, name string, args ...string) ([]byte, error)
}

// Credentials are who we are and where.
type Credentials struct {
	Cloud           cloud.Configuration
	TokenCredential azcore.TokenCredential
	// Transport is to be used for requests to Azure too: it trusts CAFile.
	Transport     policy.Transporter
	Subscription  string // "" where the source does not say
	Tenant        string
	ResourceGroup string // "" where the source does not say
	Location      string // "" where the source does not say
	// Source says where they come from, for people: "azure.json
	// /etc/kubernetes/azure.json, service principal 1234".
	Source string
}

// An attempt is one source that was tried.
type attempt struct {
	source string
	err    error
}

// errAbsent is a source that is not set up: not an error of its own.
var errAbsent = errors.New("not set up")

// Load finds the credentials. It does not log in: whether they are right shows
// at the first request. The error lists what was tried, in order, why each was
// not usable, and what to do.
func Load(ctx context.Context, c Config) (Credentials, error) {
	const op = "find Azure credentials"
	if c.Getenv == nil {
		c.Getenv = func(string) string { return "" }
	}
	if c.Run == nil {
		c.Run = run
	}
	c.DefaultFile = cmp.Or(c.DefaultFile, DefaultFile)
	if c.Transport == nil {
		t, err := transport(c.CAFile)
		if err != nil {
			return Credentials{}, &fleet.Error{Op: op, Kind: fleet.KindInvalid, Err: err, Remedy: "give a file with certificates in PEM"}
		}
		if c.Wrap != nil {
			t.Transport = c.Wrap(t.Transport)
		}
		c.Transport = t
	}
	if c.File != "" {
		cr, err := c.fromFile(ctx, c.File)
		if err != nil {
			return Credentials{}, &fleet.Error{Op: op, Resource: c.File, Kind: kindOf(err), Err: err,
				Remedy: "correct the azure.json, or leave it away to use workload identity, the environment or the Azure CLI"}
		}
		return cr, nil
	}
	var tried []attempt
	for _, source := range []struct {
		name string
		load func(context.Context) (Credentials, error)
	}{
		{"workload identity (AZURE_FEDERATED_TOKEN_FILE, AZURE_CLIENT_ID, AZURE_TENANT_ID)", c.fromWorkload},
		{"environment (AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH)", c.fromEnvironment},
		{"azure.json (" + c.DefaultFile + ")", func(ctx context.Context) (Credentials, error) {
			cr, err := c.fromFile(ctx, c.DefaultFile)
			if errors.Is(err, os.ErrNotExist) {
				return cr, fmt.Errorf("%w: there is no such file", errAbsent)
			}
			return cr, err
		}},
		{"Azure CLI (az)", c.fromCLI},
	} {
		cr, err := source.load(ctx)
		if err == nil {
			return cr, nil
		}
		tried = append(tried, attempt{source.name, err})
		if !errors.Is(err, errAbsent) {
			break // set up but wrong: going on would use somebody else's rights
		}
	}
	var b strings.Builder
	b.WriteString("tried in this order:")
	for i, a := range tried {
		fmt.Fprintf(&b, "\n  %d. %s: %v", i+1, a.source, a.err)
	}
	return Credentials{}, &fleet.Error{Op: op, Kind: fleet.KindUnauthenticated, Err: errors.New(b.String()),
		Remedy: "set up one of them, for example with --azure-config FILE, or: az login"}
}

func kindOf(err error) fleet.Kind {
	if k := fleet.KindOf(err); k != fleet.KindUnknown {
		return k
	}
	if errors.Is(err, os.ErrPermission) {
		return fleet.KindDenied
	}
	return fleet.KindInvalid
}

// readFile reads a file that must be small.
func readFile(path string) (_ []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), nil
}

// transport is the HTTP client for Azure and for logging in.
func transport(caFile string) (*http.Client, error) {
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("the process's HTTP transport was replaced by another type")
	}
	t := base.Clone()
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		// The instance metadata service is on the link: no proxy reaches it.
		if ip := net.ParseIP(r.URL.Hostname()); ip != nil && ip.IsLinkLocalUnicast() {
			return nil, nil
		}
		return http.ProxyFromEnvironment(r)
	}
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		data, err := readFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("certificates: %s has none", caFile)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	return &http.Client{Transport: t}, nil
}

// run runs a program and gives its output; its error has what it complained of.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second // az is a script: what it started holds the pipes
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(complaint.String()); text != "" {
			if len(text) > 500 {
				text = text[:500] + "…"
			}
			return nil, fmt.Errorf("%w: %s", err, text)
		}
		return nil, err
	}
	return out.Bytes(), nil
}

// options are those of every azidentity credential. Retrying is the caller's.
func (c Config) options(where cloud.Configuration) azcore.ClientOptions {
	return azcore.ClientOptions{Cloud: where, Transport: c.Transport, Retry: policy.RetryOptions{MaxRetries: -1}}
}

// A login is what a credential is made from.
type login struct {
	where       cloud.Configuration
	ownInstance bool // the cloud is not one that the public log-in host knows
	tenant      string
	client      string
}

func (c Config) withSecret(l login, secret fleet.Secret) (azcore.TokenCredential, error) {
	return orError(azidentity.NewClientSecretCredential(l.tenant, l.client, secret.Reveal(), &azidentity.ClientSecretCredentialOptions{
		ClientOptions: c.options(l.where), DisableInstanceDiscovery: l.ownInstance,
	}))
}

func (c Config) withCertificate(l login, path string, password fleet.Secret) (azcore.TokenCredential, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	certs, key, err := azidentity.ParseCertificates(data, []byte(password.Reveal()))
	if err != nil {
		return nil, fmt.Errorf("client certificate %s: %w", path, err)
	}
	return orError(azidentity.NewClientCertificateCredential(l.tenant, l.client, certs, key, &azidentity.ClientCertificateCredentialOptions{
		ClientOptions: c.options(l.where), DisableInstanceDiscovery: l.ownInstance,
	}))
}

func (c Config) withToken(l login, file string) (azcore.TokenCredential, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("federated token: %w", err)
	}
	return orError(azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
		ClientOptions: c.options(l.where), DisableInstanceDiscovery: l.ownInstance,
		TenantID: l.tenant, ClientID: l.client, TokenFilePath: file,
	}))
}

// withIdentity uses a managed identity. id is "" for the system-assigned one,
// a client id, or an ARM id. The SDK's own retries stay on: the metadata service
// answers 404, 410 and 429 in normal life.
func (c Config) withIdentity(where cloud.Configuration, id string) (azcore.TokenCredential, error) {
	o := c.options(where)
	o.Retry = policy.RetryOptions{}
	m := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: o}
	switch {
	case strings.HasPrefix(id, "/"):
		m.ID = azidentity.ResourceID(id)
	case id != "":
		m.ID = azidentity.ClientID(id)
	}
	return orError(azidentity.NewManagedIdentityCredential(m))
}

// orError keeps a nil pointer from becoming an interface that is not nil.
func orError[T azcore.TokenCredential](cred T, err error) (azcore.TokenCredential, error) {
	if err != nil {
		return nil, err
	}
	return cred, nil
}

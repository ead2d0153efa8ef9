package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/ortet/ortet/azsim"
)

// serveOptions are the flags of azsim serve.
type serveOptions struct {
	dir        string
	listen     string
	plain      string
	names      []string
	speed      float64
	spec       string
	kubeconfig string
	requests   string
	logLevel   string
	instances  instanceOptions
}

func serveCommand(stdout, stderr io.Writer) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve --dir DIR",
		Short: "Serve a simulated Azure over TLS until SIGTERM",
		Long: `Serve a simulated Azure over TLS until SIGTERM.

When ready, azsim writes DIR/endpoint.json with its URL, its credentials, the
certificate to trust, and an azure.json for Ortet and the cloud provider.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(stderr, o.logLevel)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), o, stdout, log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", "", "`DIR` for endpoint.json, certificates and volumes, created if missing; required")
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "listen `ADDRESS`; port 0 picks a free one")
	f.StringVar(&o.plain, "listen-plain", "127.0.0.1:0", "listen `ADDRESS` without TLS: HTTP proxy for the attestation issuer's certificate, metadata services; port 0 picks a free one")
	f.StringSliceVar(&o.names, "name", nil, "additional host `NAME` or IP address in the server's certificate; repeatable")
	f.Float64Var(&o.speed, "speed", 1, "`FACTOR` by which operations are faster than Azure's")
	f.StringVar(&o.spec, "spec", "", "YAML `FILE` of the initial resources")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "administrator's kubeconfig `FILE` of the cluster that instances join")
	f.StringVar(&o.requests, "requests", "", "append each request with its body to `FILE`, which then has tokens and secrets")
	f.StringVar(&o.logLevel, "log-level", "info", "lowest `LEVEL` logged: debug (every request), info, warn or error")
	o.instances.addFlags(f)
	return cmd
}

// validate finds every mistake in the flags.
func (o *serveOptions) validate() error {
	var problems []error
	if o.dir == "" {
		problems = append(problems, errors.New("--dir is missing: name a folder for endpoint.json"))
	}
	if o.speed <= 0 {
		problems = append(problems, fmt.Errorf("--speed %v: want more than 0", o.speed))
	}
	for flag, address := range map[string]string{"--listen": o.listen, "--listen-plain": o.plain} {
		if _, _, err := net.SplitHostPort(address); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", flag, err))
		}
	}
	if o.kubeconfig != "" {
		if _, err := os.Stat(o.kubeconfig); err != nil {
			problems = append(problems, fmt.Errorf("--kubeconfig: %w", err))
		}
	}
	problems = append(problems, o.instances.validate(o.kubeconfig))
	if err := errors.Join(problems...); err != nil {
		return usageError{err}
	}
	return nil
}

func (o *serveOptions) readSpec() (*azsim.Spec, error) {
	if o.spec == "" {
		return &azsim.Spec{}, nil
	}
	data, err := os.ReadFile(o.spec)
	if err != nil {
		return nil, usageError{fmt.Errorf("--spec: %w", err)}
	}
	spec, err := azsim.ParseSpec(data)
	if err != nil {
		return nil, usageError{fmt.Errorf("--spec %s: %w", o.spec, err)}
	}
	return spec, nil
}

// serve runs the server until ctx ends.
func serve(ctx context.Context, o serveOptions, stdout io.Writer, log *slog.Logger) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	spec, err := o.readSpec()
	if err != nil {
		return err
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if o.kubeconfig != "" {
		if o.kubeconfig, err = filepath.Abs(o.kubeconfig); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	// A stale file would say that a server is ready which is not.
	if err := os.Remove(filepath.Join(o.dir, endpointFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", o.listen, err)
	}
	defer func() { _ = listener.Close() }() // closed by the HTTP server already, if it came so far

	azure := &azsim.Server{Speed: o.speed, Log: log, SigningKey: randomBytes()}
	if err := spec.Apply(azure); err != nil {
		return usageError{err}
	}
	if len(azure.Principals) == 0 {
		azure.Principals = []azsim.Principal{{
			Name: "owner", ClientID: azsim.DefaultClientID, Secret: hex.EncodeToString(randomBytes()[:16]), Roles: []azsim.Grant{{Role: "Owner"}},
		}}
	}
	tls, err := newCertificates(o.dir, append([]string{hostOf(listener.Addr().String())}, o.names...), time.Now())
	if err != nil {
		return err
	}
	point, err := newEndpoint(o, azure, listener.Addr().String())
	if err != nil {
		return err
	}
	substrate, err := o.instances.open(o, point, log)
	if err != nil {
		return err
	}
	if substrate != nil {
		azure.Substrate = substrate
		defer func() { err = errors.Join(err, substrate.Close()) }()
	}
	defer azure.Close() // before its substrate

	handler, err := recording(azure, o.requests)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: handler, TLSConfig: tls, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- web.ServeTLS(listener, "", "") }()
	defer func() {
		// The context has ended: give running requests a little time of their own.
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if web.Shutdown(grace) != nil {
			_ = web.Close() // cut off what does not end
		}
	}()
	stop, err := servePlainly(ctx, o.plain, azure, point, log)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(stdout, "azsim: listening on %s\n", point.ResourceManager)
	if err := azure.Create(ctx, spec); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := point.write(o.dir); err != nil {
		return err
	}
	defer func() { _ = os.Remove(filepath.Join(o.dir, endpointFile)) }() // the folder may be gone
	fmt.Fprintf(stdout, "azsim: ready; see %s\n", filepath.Join(o.dir, endpointFile))
	select {
	case <-ctx.Done():
		fmt.Fprintln(stdout, "azsim: stopping")
		return nil
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
}

// recording is a handler that appends requests, as they came, to a file; "" is none.
func recording(to http.Handler, name string) (http.Handler, error) {
	if name == "" {
		return to, nil
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) // #nosec G304 -- the caller's own flag
	if err != nil {
		return nil, fmt.Errorf("--requests: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := httputil.DumpRequest(r, true)
		if err == nil {
			_, err = file.Write(append(text, '\n'))
		}
		if err != nil {
			http.Error(w, "azsim: --requests: "+err.Error(), http.StatusInternalServerError)
			return
		}
		to.ServeHTTP(w, r)
	}), nil
}

// servePlainly writes the root of attested documents, and serves without TLS what is
// asked for without: their issuer's certificate, to whoever takes the listener for an
// HTTP proxy, and the instances' metadata services. stop ends that.
func servePlainly(ctx context.Context, address string, azure *azsim.Server, point *endpoint, log *slog.Logger) (stop func(), err error) {
	root := azure.AttestationPEM()
	if root == nil {
		return nil, errors.New("make the authority of attested documents: see the log")
	}
	if err := writeFile(point.AttestationCAFile, root); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for who asks without TLS: %w", err)
	}
	point.AttestationProxy = "http://" + listener.Addr().String()
	point.InstanceMetadata = point.AttestationProxy + "/azsim/imds"
	mux := http.NewServeMux()
	mux.Handle("/pkiops/certs/", azure.Publication())
	mux.Handle("/azsim/imds/", azure)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go func() { _ = web.Serve(listener) }() // ends with stop
	return func() { _ = web.Close() }, nil
}

func randomBytes() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/azsim"
	admissionkube "github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/cli"
	"github.com/ortet/ortet/internal/node/join"
	"github.com/ortet/ortet/internal/wire"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/controlplane"
)

const (
	admissionNodes  = 1000
	admissionWithin = 10 * time.Second // they begin to ask
	admissionAlone  = 20               // nodes that ask one after the other
	admissionPool   = "pool1"
	firstPort       = 20000 // of the nodes' callbacks
	admissionSpace  = "ortet-system"
)

// admissionRush is a thousand nodes that ask to join within ten seconds, by the
// agent's own code, of a real `ortet admission` on one core, before a simulated Azure
// and a real API server; and beside it the same number who ask a server as source 5
// has it.
func admissionRush(ctx context.Context, _ options) (_ []figure, err error) {
	s, err := newAdmissionSite(ctx, admissionNodes, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	before := s.armRequests()
	peak := watchMemory(s.server.Process.Pid)
	rush, failed := s.rush(ctx, s.join)
	own := peak()
	if failed != nil {
		return nil, fmt.Errorf("joining: %w", failed)
	}
	resident, err := memoryOf(s.server.Process.Pid, "VmHWM:")
	if err != nil {
		return nil, err
	}
	tokens, err := s.tokens(ctx)
	if err != nil {
		return nil, err
	}
	figures := []figure{
		atLeast("admitted", float64(tokens), "nodes", admissionNodes),
		atMost("all-admitted", rush.whole.Seconds(), "s", 30),
		free("p50", percentile(rush.each, 50).Seconds(), "s"),
		atMost("p99", percentile(rush.each, 99).Seconds(), "s", 5),
		// What it allocates; the program's own text, of which the kernel keeps as much as
		// there is room for, is in the second.
		atMost("peak-memory", float64(own)/(1<<20), "MiB", 100),
		free("peak-resident", float64(resident)/(1<<20), "MiB"),
		free("arm-requests", float64(s.armRequests()-before), "requests"),
	}
	naive, failed := s.naive(ctx)
	if failed != nil {
		return nil, fmt.Errorf("the server of one thread: %w", failed)
	}
	return append(figures,
		free("one-thread-all-answered", naive.whole.Seconds(), "s"),
		free("one-thread-p99", percentile(naive.each, 99).Seconds(), "s"),
		atLeast("times-sooner", naive.whole.Seconds()/rush.whole.Seconds(), "x", 1),
	), nil
}

// admissionLatency is what admission adds to a node's path to Ready: from the agent's
// start until the files are there, of nodes that ask one after the other.
func admissionLatency(ctx context.Context, _ options) (_ []figure, err error) {
	s, err := newAdmissionSite(ctx, admissionAlone, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var each []time.Duration
	for i := range admissionAlone {
		began := time.Now()
		if err := s.join(ctx, i); err != nil {
			return nil, err
		}
		each = append(each, time.Since(began))
	}
	return []figure{
		atMost("p50", float64(percentile(each, 50).Microseconds())/1000, "ms", 150),
		free("max", float64(percentile(each, 100).Microseconds())/1000, "ms"),
	}, nil
}

// An admissionSite is a cluster, a scale set's machines that are nothing but their
// metadata service, and an `ortet admission` in a process of its own.
type admissionSite struct {
	benchCluster
	cloud    *azsim.Server
	web      *httptest.Server
	metadata *httptest.Server
	machines *paperMachines
	hosts    []string // in the order of their computers
	server   *exec.Cmd
	log      *os.File
	url      string
	hash     string
}

func newAdmissionSite(ctx context.Context, nodes int64, change func(map[string]any)) (_ *admissionSite, err error) {
	s := &admissionSite{machines: &paperMachines{all: map[string]azsim.Computer{}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.startCluster(ctx); err != nil {
		return nil, err
	}
	s.cloud = &azsim.Server{Substrate: s.machines, AttestationChain: true,
		// Scheduled events are on at once.
		Profile: azsim.Profile{"events.first": {}, "events.enable": {}}}
	s.web = httptest.NewTLSServer(s.cloud)
	s.metadata = httptest.NewServer(s.machines)
	s.undo = append(s.undo, func() error { s.web.Close(); s.metadata.Close(); s.cloud.Close(); return nil })
	if err := s.makeMachines(ctx, nodes, change); err != nil {
		return nil, fmt.Errorf("make the machines: %w", err)
	}
	return s, s.startServer(ctx)
}

func (s *admissionSite) startCluster(ctx context.Context) error {
	if err := s.start(ctx, forever); err != nil {
		return err
	}
	for _, name := range []string{admissionSpace, admissionkube.KeysNamespace(admissionSpace)} {
		_, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	_, err := s.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ortet-tokens"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:bootstrappers:ortet"}},
	}, metav1.CreateOptions{})
	return err
}

func (s *admissionSite) makeMachines(ctx context.Context, nodes int64, change func(map[string]any)) error {
	if err := (azsimserver.Pool{Name: admissionPool, Capacity: nodes, Change: func(body map[string]any) {
		azsimserver.Bare(body)
		body["properties"].(map[string]any)["singlePlacementGroup"] = false // more than 100
		if change != nil {
			change(body)
		}
	}}).CreateIn(ctx, s.cloud); err != nil {
		return err
	}
	s.hosts = s.machines.hosts()
	if len(s.hosts) != int(nodes) {
		return fmt.Errorf("%d machines run, want %d", len(s.hosts), nodes)
	}
	return nil
}

// startServer starts `ortet admission`, which is this program again, since the
// simulated machines' addresses lead here.
func (s *admissionSite) startServer(ctx context.Context) error {
	if err := azureFiles(s.dir, s.web); err != nil {
		return err
	}
	roots := filepath.Join(s.dir, "roots.pem")
	if err := os.WriteFile(roots, s.cloud.AttestationPEM(), 0o600); err != nil {
		return err
	}
	args := []string{
		"admission", "--kubeconfig", s.cp.Kubeconfig, "--azure-config", filepath.Join(s.dir, "azure.json"), "--attestation-roots", roots,
		"--namespace", admissionSpace, "--pool", "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/" + azsim.DefaultResourceGroup + "/providers/Microsoft.Compute/virtualMachineScaleSets/" + admissionPool,
		"--tls-san", "127.0.0.1", "--listen", "127.0.0.1:0", "--metrics-address", "0", "--health-address", "0", "--audit-log", filepath.Join(s.dir, "audit.log"),
		// All nodes have one address here.
		"--rate-per-address", "500", "--callback-port", "20000-20999", "--max-connections", "1024", "--log-level", "INFO",
	}
	hash, err := s.serverCommand(ctx, append(args, "--print-ca-hash")...).Output()
	if err != nil {
		return fmt.Errorf("ortet admission --print-ca-hash: %w", err)
	}
	s.hash = strings.TrimSpace(string(hash))
	if s.log, err = os.Create(filepath.Join(s.dir, "admission.log")); err != nil {
		return err
	}
	s.server = s.serverCommand(ctx, args...)
	s.server.Stderr = s.log
	if err := s.server.Start(); err != nil {
		return err
	}
	s.undo = append(s.undo, func() error {
		_ = s.server.Process.Signal(syscall.SIGTERM) // it may have ended, which Wait tells
		err := s.server.Wait()
		if err != nil {
			text, _ := os.ReadFile(s.log.Name()) // only for whoever looks
			err = fmt.Errorf("ortet admission: %w: %s", err, text)
		}
		return errors.Join(err, s.log.Close())
	})
	listening := regexp.MustCompile(`for=machines address=(\S+)`)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for {
		text, err := os.ReadFile(s.log.Name())
		if err != nil {
			return err
		}
		if found := listening.FindSubmatch(text); found != nil {
			s.url = "https://" + string(found[1])
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return fmt.Errorf("ortet admission does not listen: %s", text)
		case <-tick.C:
		}
	}
}

// serveArgument has this program be `ortet`, on one core.
const serveArgument = "serve-ortet"

func (s *admissionSite) serverCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{serveArgument}, args...)...) //nolint:gosec // this program, with arguments of ours
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "SSL_CERT_FILE="+filepath.Join(s.dir, "ca.pem"), "AZURE_ENVIRONMENT_FILEPATH="+filepath.Join(s.dir, "azurestackcloud.json"), "KUBECONFIG=")
	return cmd
}

// serveOrtet is `ortet` as it is shipped, but that the simulated network's addresses
// lead to this host.
func serveOrtet(ctx context.Context, args []string) int {
	return cli.Run(ctx, args, cli.Process{In: strings.NewReader(""), Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Version: "bench",
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
		}})
}

// agent is the i-th machine's.
func (s *admissionSite) agent(i int) (*join.Client, error) {
	root := filepath.Join(s.dir, "nodes", s.hosts[i])
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	return join.NewClient(join.Settings{Servers: []string{s.url}, CAHash: s.hash, Distribution: wire.Kubelet, CallbackPort: firstPort + i},
		join.Options{Root: root, Metadata: s.metadata.URL + "/" + s.hosts[i], Log: slog.New(slog.DiscardHandler)})
}

// join has the i-th machine join.
func (s *admissionSite) join(ctx context.Context, i int) error {
	c, err := s.agent(i)
	if err != nil {
		return err
	}
	return c.Join(ctx, false)
}

// A rush is how long all took from the first one's begin, and each.
type rush struct {
	whole time.Duration
	each  []time.Duration
}

// rush has all machines do something, begun one after the other.
func (s *admissionSite) rush(ctx context.Context, do func(context.Context, int) error) (rush, error) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Minute)
	defer cancel()
	r := rush{each: make([]time.Duration, len(s.hosts))}
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		errs error
	)
	began := time.Now()
	for i := range s.hosts {
		all.Go(func() {
			_ = wait(ctx, admissionWithin*time.Duration(i)/time.Duration(len(s.hosts))) // do returns the error
			mine := time.Now()
			err := do(ctx, i)
			r.each[i] = time.Since(mine)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				if errs == nil {
					errs = fmt.Errorf("%s: %w", s.hosts[i], err)
				}
			}
		})
	}
	all.Wait()
	r.whole = time.Since(began)
	return r, errs
}

// naive is source 5's join server: plain HTTP, one thread, a kubectl for each join.
func (s *admissionSite) naive(ctx context.Context) (rush, error) {
	binary, err := controlplane.Binary(ctx)
	if err != nil {
		return rush{}, err
	}
	var one sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one.Lock()
		defer one.Unlock()
		// That there is no such Node yet is what it meets at every join.
		cmd := exec.CommandContext(r.Context(), binary, "kubectl", "--kubeconfig", s.cp.Kubeconfig, "uncordon", filepath.Base(r.URL.Path)) //nolint:gosec // our own clients ask, and no shell is between
		_ = cmd.Run()
		_, _ = io.WriteString(w, "K10::server:token")
	}))
	defer server.Close()
	return s.rush(ctx, func(ctx context.Context, i int) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/join/"+s.hosts[i], nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return errors.Join(err, answer.Body.Close())
	})
}

// percentile is the p-th of durations or other values, in hundredths.
func percentile[T cmp.Ordered](all []T, p int) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max((len(sorted)*p+99)/100, 1)-1]
}

// tokens counts the bootstrap tokens that are there.
func (s *admissionSite) tokens(ctx context.Context) (int, error) {
	list, err := s.client.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	if err != nil {
		return 0, err
	}
	return len(list.Items), nil
}

func (s *admissionSite) armRequests() int {
	n := 0
	for _, r := range s.cloud.Requests() {
		if r.Action != "" {
			n = max(n, r.Seq)
		}
	}
	return n
}

// paperMachines are computers that are nothing but their metadata service, which
// answers below /HOSTNAME.
type paperMachines struct {
	azsim.NopSubstrate
	mu  sync.Mutex
	all map[string]azsim.Computer
}

func (m *paperMachines) Boot(_ context.Context, c azsim.Computer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[c.HostName] = c
	return nil
}

// ServeHTTP is the metadata service of the machine that the path begins with.
func (m *paperMachines) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	m.mu.Lock()
	c, ok := m.all[host]
	m.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	http.StripPrefix("/"+host, c.IMDS).ServeHTTP(w, r)
}

func (m *paperMachines) hosts() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for h := range m.all {
		all = append(all, h)
	}
	return all
}

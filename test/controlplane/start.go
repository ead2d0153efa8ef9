package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ortet/ortet/test/access"
	"github.com/ortet/ortet/test/process"
)

const (
	serviceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1" // of the service "kubernetes"
	loopback    = "127.0.0.1"

	startTimeout = 10 * time.Minute // a component that ends is reported at once
)

// Config says what control plane to start. Only Dir and Binary are required.
type Config struct {
	// Dir takes keys, data, logs and kubeconfigs. It is made, with mode 0700,
	// and must not hold a control plane already.
	Dir string
	// Binary is the multi-call binary; see Binary.
	Binary string

	// Listen is the API server's address, "127.0.0.1" by default. "0.0.0.0" lets
	// machines in other network namespaces reach it.
	Listen string
	// Port is the API server's; 0 takes a free one.
	Port int
	// Advertise is the address that the service "kubernetes" leads to. Without
	// one the service has no endpoint, since it cannot be a loopback address.
	Advertise string
	// Hosts are more names and addresses by which clients reach the API server.
	Hosts []string
	// PodCIDR lets the controller manager give each node a range of pod
	// addresses, "10.244.0.0/16"; "" leaves that to the nodes.
	PodCIDR string
	// NodeMonitorGracePeriod is how long a node may be silent before it counts
	// as Unknown; 0 is Kubernetes' default (50 s).
	NodeMonitorGracePeriod time.Duration
	// Now is the clock of the certificates; nil means the real one.
	Now func() time.Time
}

// A ControlPlane is a running one. Its methods are safe for concurrent use.
type ControlPlane struct {
	// Server is the API server's URL for clients on this machine.
	Server string
	// Kubeconfig is the path of the administrator's.
	Kubeconfig string
	// CAFile is the path of the certificate authority for the API server and
	// for clients, the API server's own client certificate to kubelets too.
	CAFile string
	// Binary is the multi-call binary, so also kubectl and the kubelet.
	Binary string
	// Dir is Config.Dir; each component's log is <component>.log in it.
	Dir string

	ca        *access.Authority
	port      int
	processes []*process.Process // in order of their start
}

// Start starts a control plane and returns when it serves: the API server is
// ready, TLS bootstrap of kubelets is permitted, and the default namespace has
// its service account, so that pods can be made. The error quotes the log of the
// component that failed; nothing runs then.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	config, err := config.defaulted()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	files, err := lay(config)
	if err != nil {
		return nil, fmt.Errorf("prepare a control plane in %s: %w", config.Dir, err)
	}
	// A port that was free may be taken by the time that it is used: try anew.
	for attempt := 1; ; attempt++ {
		cp, err := files.start(ctx, config)
		if err == nil {
			return cp, nil
		}
		if attempt == 3 || ctx.Err() != nil || !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
		if err := os.RemoveAll(filepath.Join(config.Dir, "etcd")); err != nil {
			return nil, err
		}
	}
}

func (c Config) defaulted() (Config, error) {
	if c.Dir == "" || c.Binary == "" {
		return c, errors.New("a control plane needs Dir and Binary")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, err
	}
	c.Dir = dir
	if _, err := os.Stat(filepath.Join(dir, "pki")); err == nil {
		return c, fmt.Errorf("%s holds a control plane already: remove it or name another folder", dir)
	}
	c.Listen = cmp.Or(c.Listen, loopback)
	if net.ParseIP(c.Listen) == nil {
		return c, fmt.Errorf("listen address %q is no IP address", c.Listen)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, nil
}

// layout is the files that components share.
type layout struct {
	dir    string
	ca     *access.Authority
	etcdCA *access.Authority
	front  *access.Authority
}

func (l *layout) pki(name string) string { return filepath.Join(l.dir, "pki", name) }

func lay(config Config) (*layout, error) {
	l := &layout{dir: config.Dir}
	pki := filepath.Join(config.Dir, "pki")
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Mkdir(pki, 0o700); err != nil {
		return nil, err
	}
	for _, a := range []struct {
		into       **access.Authority
		name       string
		commonName string
	}{
		{&l.ca, "ca", "kubernetes"}, {&l.etcdCA, "etcd-ca", "etcd-ca"}, {&l.front, "front-proxy-ca", "front-proxy-ca"},
	} {
		made, err := access.NewAuthority(pki, a.name, a.commonName, config.Now)
		if err != nil {
			return nil, err
		}
		*a.into = made
	}
	hosts := append([]string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		loopback, serviceIP,
	}, config.Hosts...)
	for _, host := range []string{config.Listen, config.Advertise} {
		if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
			hosts = append(hosts, host)
		}
	}
	return l, errors.Join(
		l.ca.ServerFiles("apiserver", "kube-apiserver", hosts...),
		l.ca.ClientFiles("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
		l.etcdCA.ServerFiles("etcd", "etcd", "localhost", loopback),
		l.etcdCA.ClientFiles("apiserver-etcd-client", "kube-apiserver"),
		l.front.ClientFiles("front-proxy-client", "front-proxy-client"),
		access.WriteServiceAccountKey(l.pki("sa.key")),
	)
}

// start runs the components once.
func (l *layout) start(ctx context.Context, config Config) (_ *ControlPlane, err error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	if config.Port != 0 {
		ports[2] = config.Port
	}
	reach := config.Listen
	if net.ParseIP(reach).IsUnspecified() {
		reach = loopback
	}
	cp := &ControlPlane{
		Server:     "https://" + net.JoinHostPort(reach, strconv.Itoa(ports[2])),
		Kubeconfig: filepath.Join(config.Dir, "kubeconfig"),
		CAFile:     l.ca.CertFile(),
		Binary:     config.Binary,
		Dir:        config.Dir,
		ca:         l.ca,
		port:       ports[2],
	}
	defer func() {
		if err != nil {
			// The context may be what ended the start.
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			err = errors.Join(err, cp.Stop(stop))
		}
	}()

	if err := l.kubeconfigs(cp); err != nil {
		return nil, err
	}
	etcd := fmt.Sprintf("https://%s:%d", loopback, ports[0])
	if err := cp.run("etcd", l.etcdFlags(etcd, fmt.Sprintf("https://%s:%d", loopback, ports[1]))...); err != nil {
		return nil, err
	}
	if err := cp.run("kube-apiserver", l.apiserverFlags(config, etcd, ports[2])...); err != nil {
		return nil, err
	}
	restConfig, err := cp.RESTConfig()
	if err != nil {
		return nil, err
	}
	if err := cp.await(ctx, "the API server to be ready", func(ctx context.Context) error {
		return ready(ctx, restConfig)
	}); err != nil {
		return nil, err
	}
	if err := cp.run("kube-controller-manager", l.controllerManagerFlags(config)...); err != nil {
		return nil, err
	}
	if err := cp.run("kube-scheduler",
		"--kubeconfig="+l.kubeconfig("scheduler"),
		"--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=200", "--kube-api-burst=400",
	); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return nil, err
	}
	if err := permitTLSBootstrap(ctx, client, cp); err != nil {
		return nil, err
	}
	return cp, cp.await(ctx, "the controller manager to make service accounts", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// run starts a component, to be stopped with the control plane.
func (cp *ControlPlane) run(name string, args ...string) error {
	p, err := process.Start(process.Command{
		Name: name, Binary: cp.Binary, Args: append([]string{name}, args...), Dir: cp.Dir, Log: filepath.Join(cp.Dir, name+".log"),
	})
	if err != nil {
		return err
	}
	cp.processes = append(cp.processes, p)
	return nil
}

// await calls check until it succeeds, a component ends or ctx does.
func (cp *ControlPlane) await(ctx context.Context, what string, check func(context.Context) error) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		for _, p := range cp.processes {
			if p.Exited() {
				return fmt.Errorf("waiting for %s: %w", what, ended(p))
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			last := cp.processes[len(cp.processes)-1]
			return fmt.Errorf("waiting for %s: %w (last answer: %w); last words of %s:\n%s", what, context.Cause(ctx), err, last.Name, last.LogTail(20))
		}
	}
}

func ready(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New("/readyz: " + response.Status)
	}
	return nil
}

// Failed returns an error that quotes the log of the first component that ended
// by itself, or nil while all run.
func (cp *ControlPlane) Failed() error {
	for _, p := range cp.processes {
		if p.Exited() {
			return ended(p)
		}
	}
	return nil
}

// Wait returns nil when ctx ends, or Failed as soon as a component ends by itself.
func (cp *ControlPlane) Wait(ctx context.Context) error {
	ended := make(chan struct{}, len(cp.processes))
	for _, p := range cp.processes {
		go func() { <-p.Done(); ended <- struct{}{} }()
	}
	select {
	case <-ended:
		return cp.Failed()
	case <-ctx.Done():
		return nil
	}
}

// PIDs returns the components' process ids, in order of their start.
func (cp *ControlPlane) PIDs() []int {
	pids := make([]int, 0, len(cp.processes))
	for _, p := range cp.processes {
		pids = append(pids, p.PID)
	}
	return pids
}

// ended quotes a component that has.
func ended(p *process.Process) error {
	err := p.Err()
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended (%w); its last words:\n%s", p.Name, err, p.LogTail(20))
}

// Stop ends the components, the last started first: asked, and killed when they
// take longer than a few seconds or ctx ends. Files stay. Stopping again does
// nothing.
func (cp *ControlPlane) Stop(ctx context.Context) error {
	var errs []error
	for i := len(cp.processes) - 1; i >= 0; i-- {
		errs = append(errs, cp.processes[i].Stop(ctx, 5*time.Second))
	}
	return errors.Join(errs...)
}

// freePorts returns ports that are free on loopback, all different.
func freePorts(n int) (ports []int, err error) {
	for range n {
		listener, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // held only so that the ports differ
		address, ok := listener.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("listening on %s gave no TCP address", listener.Addr())
		}
		ports = append(ports, address.Port)
	}
	return ports, nil
}

package k3s

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/kubeconfig"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
	utilsnet "k8s.io/utils/net"
)

// Kubeconfig is the administrator's.
const Kubeconfig = "/etc/rancher/k3s/k3s.yaml"

const ownServer = "https://127.0.0.1:6443"

// server is k3s's server by its configuration. Files of flags read it.
type server struct {
	Config
	Address, Services          string // node's; range of Services'
	Agents                     AgentConfig
	serverCA, clientCA, etcdCA *Authority
	token, hash                string
}

// TLS is a file of the server's keys and certificates.
func (s *server) TLS(name string) string { return s.Dir("server", "tls", name) }

func runServer(ctx context.Context, c Config, p *processes) error {
	if c.One("server") != "" {
		return errors.New("the lab's k3s has one server: --server is for agents")
	}
	s := &server{Config: c, Services: c.Or("service-cidr", "10.43.0.0/16")}
	if err := s.prepare(time.Now()); err != nil {
		return err
	}
	if err := p.component(ctx, "etcd", s, c["etcd-arg"]); err != nil {
		return err
	}
	client, err := kubeconfig.ClientSetFromFile(Kubeconfig)
	if err != nil {
		return err
	}
	flags, err := componentFlags("kube-apiserver", s, c["kube-apiserver-arg"])
	if err != nil {
		return err
	}
	logrus.Infof("Running kube-apiserver %s", strings.Join(flags, " "))
	supervisor := &Supervisor{ServerCA: s.serverCA, ClientCA: s.clientCA, Token: s.token, Agents: s.Agents, Client: client, Now: time.Now}
	go func() { p.end(fmt.Errorf("kube-apiserver ended: %v", runAPIServer(ctx, flags, supervisor))) }()
	if err := await(ctx, "for the API server", 500*time.Millisecond, func() error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		if err := p.component(ctx, name, s, c[name+"-arg"]); err != nil {
			return err
		}
	}
	go deployManifests(ctx, c.Dir("server", "manifests"))
	logrus.Info("k3s is up and running")
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady) // fails without systemd
	own := maps.Clone(c)
	own["server"], own["token"] = []string{ownServer}, []string{"K10" + s.hash + "::server:" + s.token}
	if err := runAgent(ctx, own, p, func(node string) {
		if err := client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, passwordSecret(node), metav1.DeleteOptions{}); err != nil {
			logrus.Warnf("Unable to remove the node password of %s: %v", node, err)
		}
	}); err != nil {
		return err
	}
	return await(ctx, "for the own Node", time.Second, func() error {
		_, err := client.CoreV1().Nodes().Patch(ctx, nodeName(c), types.StrategicMergePatchType,
			[]byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":"true"}}}`), metav1.PatchOptions{})
		return err
	})
}

// prepare makes what persists, credentials for this start, and the kubeconfigs.
func (s *server) prepare(now time.Time) error {
	var err error
	if s.Address, err = nodeAddress(s.Config); err != nil {
		return err
	}
	_, services, err := net.ParseCIDR(s.Services)
	if err != nil {
		return fmt.Errorf("invalid service-cidr: %w", err)
	}
	dns, err := utilsnet.GetIndexedIP(services, 10)
	if err != nil {
		return err
	}
	s.Agents = AgentConfig{ClusterCIDR: s.Or("cluster-cidr", "10.42.0.0/16"), ClusterDNS: dns.String()}
	for name, at := range map[string]**Authority{"server-ca": &s.serverCA, "client-ca": &s.clientCA, "etcd/server-ca": &s.etcdCA} {
		if *at, err = LoadAuthority(filepath.Dir(s.TLS(name)), filepath.Base(name)); err != nil {
			return err
		}
	}
	if _, _, err := keyutil.LoadOrGenerateKeyFile(s.TLS("service.key")); err != nil {
		return err
	}
	names := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"localhost", nodeName(s.Config), "127.0.0.1", "::1", utilsnet.AddIPOffset(utilsnet.BigForIP(services.IP), 1).String(), s.Address}, s.Config["tls-san"]...)
	for _, i := range []struct {
		ca   *Authority
		file string
		who  *pkiutil.CertConfig
	}{
		{s.serverCA, "serving-kube-apiserver", subject(now, "kube-apiserver", nil, names...)},
		{s.clientCA, "client-admin", subject(now, "system:admin", []string{"system:masters"})},
		{s.etcdCA, "etcd/server", subject(now, "etcd-server", nil, "localhost", "127.0.0.1")},
	} {
		if err := i.ca.issue(s.TLS(i.file), i.who); err != nil {
			return err
		}
	}
	mode, err := strconv.ParseUint(s.Or("write-kubeconfig-mode", "0600"), 8, 32)
	if err != nil {
		return fmt.Errorf("invalid write-kubeconfig-mode: %w", err)
	}
	return errors.Join(
		writeKubeconfig(Kubeconfig, ownServer, s.TLS("server-ca.crt"), s.TLS("client-admin"), true), os.Chmod(Kubeconfig, fs.FileMode(mode)),
		os.MkdirAll(s.Dir("server", "manifests"), 0o700),
		writeRendered(s.Dir("server", "manifests", "runtimes.yaml"), "runtimes.yaml", s), s.writeToken())
}

// writeToken finds the server's token: configured, kept from an earlier start, or
// random.
func (s *server) writeToken() error {
	s.token, s.hash = s.One("token"), hashCA(s.serverCA.PEM)
	if kept, err := os.ReadFile(s.Dir("server", "token")); err == nil && s.token == "" {
		s.token = strings.TrimSpace(string(kept))
	}
	if s.token = s.token[strings.LastIndex(s.token, ":")+1:]; s.token == "" {
		s.token = rand.Text()
	}
	full := []byte("K10" + s.hash + "::server:" + s.token + "\n")
	return errors.Join(writeFile(s.Dir("server", "token"), full), writeFile(s.Dir("server", "node-token"), full))
}

// runAPIServer is kube-apiserver in this process, with the supervisor before it.
func runAPIServer(ctx context.Context, flags []string, supervisor *Supervisor) error {
	o := options.NewServerRunOptions()
	parser := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	parser.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	for _, set := range o.Flags().FlagSets {
		parser.AddFlagSet(set)
	}
	if err := parser.Parse(flags); err != nil {
		return err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // as kube-apiserver does: the loopback client would log its own requests
	if err := errors.Join(o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(), logsapi.ValidateAndApply(o.Logs, nil)); err != nil {
		return err
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(completed.Validate()...); err != nil {
		return err
	}
	config, err := apiserver.NewConfig(completed)
	if err != nil {
		return err
	}
	generic := &config.Aggregator.GenericConfig.Config
	chain := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		supervisor.Authenticator = c.Authentication.Authenticator
		return supervisor.Wrap(chain(handler, c))
	}
	ready, err := config.Complete()
	if err != nil {
		return err
	}
	aggregator, err := apiserver.CreateServerChain(ready)
	if err != nil {
		return err
	}
	prepared, err := aggregator.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}

// deployManifests applies the folder's files at the start and when one changes, until
// ctx ends. What is taken out of a file, or the file itself, leaves its objects in the
// cluster.
func deployManifests(ctx context.Context, dir string) {
	for applied := ""; ; {
		entries, err := os.ReadDir(dir)
		now := ""
		for _, entry := range entries {
			if info, err := entry.Info(); err == nil {
				now += fmt.Sprintln(info.Name(), info.Size(), info.ModTime())
			}
		}
		if now != applied {
			// What fails, as for a kind that is not there yet, is tried again.
			if err = command(ctx, "/proc/self/exe", "kubectl", "--kubeconfig", Kubeconfig, "apply", "--server-side", "--force-conflicts", "--field-manager=deploy@k3s", "-f", dir); err == nil {
				applied = now
				logrus.Infof("Applied manifests of %s", dir)
			}
		}
		if err != nil {
			logrus.Errorf("Failed to process manifests: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
	}
}

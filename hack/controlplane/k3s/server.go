package k3s

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	utilsnet "k8s.io/utils/net"
)

// server is k3s's server by its configuration. Files of flags read it.
type server struct {
	Config
	Address, Advertise, Port              string // node's; API server's
	Services, serviceIP                   string
	Agents                                AgentConfig
	serverCA, clientCA, requestCA, etcdCA *Authority
	serverToken, agentToken               string
}

// TLS is a file of the server's keys and certificates.
func (s *server) TLS(name string) string { return s.Dir("server", "tls", name) }

// Cred is the kubeconfig of a component.
func (s *server) Cred(name string) string { return s.Dir("server", "cred", name+".kubeconfig") }

func runServer(ctx context.Context, c Config, p *processes) error {
	if c.One("server") != "" {
		return errors.New("the lab's k3s has one server: --server is for agents")
	}
	s := &server{Config: c, Port: c.Or("https-listen-port", "6443"), Services: c.Or("service-cidr", "10.43.0.0/16")}
	if err := s.prepare(time.Now()); err != nil {
		return err
	}
	if err := p.startComponent("etcd", s, c["etcd-arg"]); err != nil {
		return err
	}
	admin, err := clientcmd.BuildConfigFromFlags("", s.Cred("admin"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	supervisor := &Supervisor{
		ServerCA: s.serverCA, ClientCA: s.clientCA, ServerToken: s.serverToken, AgentToken: s.agentToken, Agents: s.Agents,
		APIServers: []string{net.JoinHostPort(s.Advertise, s.Port)}, Client: client, Now: time.Now,
	}
	flags, err := componentFlags("kube-apiserver", s, c["kube-apiserver-arg"])
	if err != nil {
		return err
	}
	logrus.Infof("Running kube-apiserver %s", strings.Join(flags, " "))
	go func() { p.ended <- fmt.Errorf("kube-apiserver ended: %v", runAPIServer(ctx, flags, supervisor)) }()
	if err := p.await(ctx, "for the API server", 500*time.Millisecond, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		if err := p.startComponent(name, s, c[name+"-arg"]); err != nil {
			return err
		}
	}
	go deployManifests(ctx, s.Cred("admin"), c.Dir("server", "manifests"), c.split("disable"))
	logrus.Info("k3s is up and running")
	notifyReady()
	if c.On("disable-agent") {
		return nil
	}
	own := maps.Clone(c)
	delete(own, "token-file")
	own["server"], own["token"] = []string{"https://127.0.0.1:" + s.Port}, []string{s.fullToken("server", s.serverToken)}
	if err := runAgent(ctx, own, p); err != nil {
		return err
	}
	return watchNodes(ctx, client, nodeName(c))
}

// prepare makes what persists, credentials for this start, and the kubeconfigs.
func (s *server) prepare(now time.Time) error {
	var err error
	if s.Address, err = nodeAddress(s.Config); err != nil {
		return err
	}
	s.Advertise = s.Or("advertise-address", s.Address)
	_, services, err := net.ParseCIDR(s.Services)
	if err != nil {
		return fmt.Errorf("invalid service-cidr: %w", err)
	}
	first, dns := utilsnet.AddIPOffset(utilsnet.BigForIP(services.IP), 1), utilsnet.AddIPOffset(utilsnet.BigForIP(services.IP), 10)
	s.serviceIP = first.String()
	s.Agents = AgentConfig{
		ClusterCIDR: s.Or("cluster-cidr", "10.42.0.0/16"), ClusterDNS: s.Or("cluster-dns", dns.String()), ClusterDomain: s.Or("cluster-domain", "cluster.local"),
		DisableKubeProxy: s.On("disable-kube-proxy"), DisableCloudController: s.On("disable-cloud-controller"),
	}
	for name, at := range map[string]**Authority{"server-ca": &s.serverCA, "client-ca": &s.clientCA, "request-header-ca": &s.requestCA, "etcd/server-ca": &s.etcdCA} {
		if *at, err = LoadAuthority(filepath.Dir(s.TLS(name)), filepath.Base(name), now); err != nil {
			return err
		}
	}
	if _, err := loadKey(s.TLS("service.key")); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	names := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + s.Agents.ClusterDomain,
		"localhost", host, "127.0.0.1", "::1", s.serviceIP, s.Address, s.Advertise}, s.split("tls-san")...)
	for _, i := range []struct {
		ca   *Authority
		file string
		who  subject
	}{
		{s.serverCA, "serving-kube-apiserver", subject{name: "kube-apiserver", hosts: names}},
		{s.clientCA, "client-admin", subject{name: "system:admin", groups: []string{"system:masters"}}},
		{s.clientCA, "client-controller", subject{name: "system:kube-controller-manager"}},
		{s.clientCA, "client-scheduler", subject{name: "system:kube-scheduler"}},
		{s.clientCA, "client-kube-apiserver", subject{name: "system:apiserver", groups: []string{"system:masters"}}},
		{s.requestCA, "client-auth-proxy", subject{name: "system:auth-proxy"}},
		{s.etcdCA, "etcd/server", subject{name: "etcd-server", hosts: []string{"localhost", "127.0.0.1"}, clients: true}},
	} {
		if err := i.ca.issue(s.TLS(i.file), i.who, now); err != nil {
			return err
		}
	}
	local := "https://127.0.0.1:" + s.Port
	for _, name := range []string{"admin", "controller", "scheduler"} {
		if err := writeKubeconfig(s.Cred(name), local, s.serverCA.PEM, s.TLS("client-"+name), false, 0o600); err != nil {
			return err
		}
	}
	mode, err := strconv.ParseUint(s.Or("write-kubeconfig-mode", "0600"), 8, 32)
	if err != nil {
		return fmt.Errorf("invalid write-kubeconfig-mode: %w", err)
	}
	bindings, err := render("rolebindings.yaml", nil)
	if err != nil {
		return err
	}
	return errors.Join(
		writeKubeconfig(s.Or("write-kubeconfig", "/etc/rancher/k3s/k3s.yaml"), local, s.serverCA.PEM, s.TLS("client-admin"), true, fs.FileMode(mode)),
		writeFile(s.Dir("server", "manifests", "rolebindings.yaml"), bindings, 0o600), s.writeTokens())
}

// writeTokens finds the server's and the agents' token: configured, kept from an
// earlier start, or random. Agents' is the server's where none is configured.
func (s *server) writeTokens() error {
	secret := func(key, file string) (string, error) {
		text := s.One(key)
		if path := s.One(key + "-file"); text == "" && path != "" {
			content, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			text = string(content)
		}
		if kept, err := os.ReadFile(s.Dir("server", file)); text == "" && err == nil {
			text = string(kept)
		}
		text = strings.TrimSpace(text)
		return text[strings.LastIndex(text, ":")+1:], nil
	}
	var err error
	if s.serverToken, err = secret("token", "token"); err != nil {
		return err
	}
	if s.serverToken == "" {
		random := make([]byte, 16)
		_, _ = rand.Read(random) // does not fail
		s.serverToken = hex.EncodeToString(random)
	}
	agents := s.fullToken("server", s.serverToken)
	s.agentToken = s.serverToken
	if s.One("agent-token")+s.One("agent-token-file") != "" {
		if s.agentToken, err = secret("agent-token", "none"); err != nil {
			return err
		}
		agents = s.fullToken("node", s.agentToken)
	}
	for name, text := range map[string]string{"token": s.fullToken("server", s.serverToken), "node-token": s.fullToken("server", s.serverToken), "agent-token": agents} {
		if err := writeFile(s.Dir("server", name), []byte(text+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) fullToken(user, password string) string {
	return "K10" + s.serverCA.Hash() + "::" + user + ":" + password
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
	registry := o.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := registry.Set(); err != nil {
		return err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // as kube-apiserver does: the loopback client would log its own requests
	if err := logsapi.ValidateAndApply(o.Logs, nil); err != nil {
		return err
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
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

// watchNodes labels the server's own Node, and deletes the password of a Node that
// is deleted, until ctx ends.
func watchNodes(ctx context.Context, client kubernetes.Interface, own string) error {
	patch := []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":"true"}}}`)
	factory := informers.NewSharedInformerFactory(client, time.Minute)
	label := func(object any) {
		node, ok := object.(*corev1.Node)
		if !ok || node.Name != own || node.Labels["node-role.kubernetes.io/control-plane"] == "true" {
			return
		}
		if _, err := client.CoreV1().Nodes().Patch(ctx, own, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			logrus.Errorf("Unable to set control-plane role label: %v", err)
		}
	}
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    label,
		UpdateFunc: func(_, object any) { label(object) },
		DeleteFunc: func(object any) {
			name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
			if err == nil {
				err = client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, passwordSecret(name), metav1.DeleteOptions{})
			}
			if err != nil {
				logrus.Warnf("Unable to remove the node password of %s: %v", name, err)
			}
		},
	})
	factory.Start(ctx.Done())
	return err
}

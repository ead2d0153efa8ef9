package k3s

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
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

const etcdURL = "https://127.0.0.1:2379"

// server is k3s's server by its configuration.
type server struct {
	config                                  Config
	address, advertise, port                string // node's, API server's
	serviceCIDR, serviceIP, dns             string
	serverCA, clientCA, requestCA, etcdCA   *Authority
	serverToken, agentToken, kubeconfigFile string
}

func (s *server) tls(name string) string  { return s.config.dir("server", "tls", name) }
func (s *server) cred(name string) string { return s.config.dir("server", "cred", name+".kubeconfig") }

func runServer(ctx context.Context, c Config, p *processes) error {
	if c.one("server") != "" {
		return errors.New("the lab's k3s has one server: --server is for agents")
	}
	s := &server{config: c, port: c.or("https-listen-port", "6443"), kubeconfigFile: c.or("write-kubeconfig", "/etc/rancher/k3s/k3s.yaml")}
	if err := s.prepare(time.Now()); err != nil {
		return err
	}
	if err := p.start("etcd", "", override(s.etcdFlags(), c["etcd-arg"])...); err != nil {
		return err
	}
	supervisor := &Supervisor{
		ServerCA: s.serverCA, ClientCA: s.clientCA, ServerToken: s.serverToken, AgentToken: s.agentToken, Now: time.Now,
		Agents: AgentConfig{
			ClusterCIDR: s.clusterCIDR(), ClusterDNS: s.dns, ClusterDomain: c.or("cluster-domain", "cluster.local"),
			DisableKubeProxy: c.on("disable-kube-proxy"), DisableCloudController: c.on("disable-cloud-controller"),
		},
		APIServers: []string{net.JoinHostPort(s.advertise, s.port)},
	}
	admin, err := clientcmd.BuildConfigFromFlags("", s.cred("admin"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	supervisor.Client = client
	flags := override(s.apiserverFlags(), c["kube-apiserver-arg"])
	logrus.Infof("Running kube-apiserver %s", strings.Join(flags, " "))
	go func() {
		p.ended <- fmt.Errorf("kube-apiserver ended: %w", errors.Join(runAPIServer(ctx, flags, supervisor), errors.New("no reason given")))
	}()
	if err := p.await(ctx, "for the API server", 500*time.Millisecond, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	for name, flags := range map[string][]string{
		"kube-controller-manager": override(s.controllerManagerFlags(), c["kube-controller-manager-arg"]),
		"kube-scheduler":          override(s.schedulerFlags(), c["kube-scheduler-arg"]),
	} {
		if err := p.start(name, "", flags...); err != nil {
			return err
		}
	}
	go deployManifests(ctx, admin, c.dir("server", "manifests"), c.split("disable"))
	logrus.Info("k3s is up and running")
	notifyReady()
	if c.on("disable-agent") {
		return nil
	}
	own := Config{"server": {"https://127.0.0.1:" + s.port}, "token": {s.fullToken("server", s.serverToken)}}
	for key, v := range c {
		if key != "server" && key != "token" && key != "token-file" {
			own[key] = v
		}
	}
	if err := runAgent(ctx, own, p); err != nil {
		return err
	}
	return watchNodes(ctx, client, nodeName(c))
}

// prepare makes what persists, credentials for this start, and the kubeconfigs.
func (s *server) prepare(now time.Time) error {
	var err error
	if s.address, err = nodeAddress(s.config); err != nil {
		return err
	}
	s.advertise = s.config.or("advertise-address", s.address)
	s.serviceCIDR = s.config.or("service-cidr", "10.43.0.0/16")
	_, services, err := net.ParseCIDR(s.serviceCIDR)
	if err != nil {
		return fmt.Errorf("invalid service-cidr: %w", err)
	}
	for n, at := range map[int]*string{1: &s.serviceIP, 10: &s.dns} {
		ip, err := utilsnet.GetIndexedIP(services, n)
		if err != nil {
			return err
		}
		*at = ip.String()
	}
	s.dns = s.config.or("cluster-dns", s.dns)
	for name, at := range map[string]**Authority{"server-ca": &s.serverCA, "client-ca": &s.clientCA, "request-header-ca": &s.requestCA, "etcd/server-ca": &s.etcdCA} {
		if *at, err = loadAuthority(filepath.Dir(s.tls(name)), filepath.Base(name), now); err != nil {
			return err
		}
	}
	if _, err := loadKey(s.tls("service.key")); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	names := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + s.config.or("cluster-domain", "cluster.local"),
		"localhost", host, "127.0.0.1", "::1", s.serviceIP, s.address, s.advertise}, s.config.split("tls-san")...)
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
		if err := i.ca.issue(s.tls(i.file), i.who, now); err != nil {
			return err
		}
	}
	local := "https://127.0.0.1:" + s.port
	for _, name := range []string{"admin", "controller", "scheduler"} {
		if err := writeFile(s.cred(name), kubeconfig(local, s.serverCA.CertFile, s.tls("client-"+name)), 0o600); err != nil {
			return err
		}
	}
	return errors.Join(s.writeKubeconfig(local), s.writeTokens(), writeFile(s.config.dir("server", "manifests", "rolebindings.yaml"), []byte(roleBindings), 0o600))
}

func (s *server) writeKubeconfig(server string) error {
	mode, err := strconv.ParseUint(s.config.or("write-kubeconfig-mode", "0600"), 8, 32)
	if err != nil {
		return fmt.Errorf("invalid write-kubeconfig-mode: %w", err)
	}
	loaded, err := clientcmd.LoadFromFile(s.cred("admin"))
	if err != nil {
		return err
	}
	user, cluster := loaded.AuthInfos["user"], loaded.Clusters["local"]
	if user.ClientCertificateData, err = os.ReadFile(user.ClientCertificate); err != nil {
		return err
	}
	if user.ClientKeyData, err = os.ReadFile(user.ClientKey); err != nil {
		return err
	}
	user.ClientCertificate, user.ClientKey = "", ""
	cluster.Server, cluster.CertificateAuthority, cluster.CertificateAuthorityData = server, "", s.serverCA.PEM
	loaded.Clusters["default"], loaded.AuthInfos["default"], loaded.Contexts["default"] = cluster, user, loaded.Contexts["Default"]
	loaded.Contexts["default"].Cluster, loaded.Contexts["default"].AuthInfo, loaded.CurrentContext = "default", "default", "default"
	delete(loaded.Clusters, "local")
	delete(loaded.AuthInfos, "user")
	delete(loaded.Contexts, "Default")
	text, err := clientcmd.Write(*loaded)
	if err != nil {
		return err
	}
	return writeFile(s.kubeconfigFile, text, fs.FileMode(mode))
}

// writeTokens finds the server's and the agents' token: configured, kept from an
// earlier start, or random. Agents' is the server's where none is configured.
func (s *server) writeTokens() error {
	secret := func(key, file string) (string, error) {
		text := s.config.one(key)
		if path := s.config.one(key + "-file"); text == "" && path != "" {
			content, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			text = string(content)
		}
		if kept, err := os.ReadFile(s.config.dir("server", file)); text == "" && err == nil {
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
	if s.config.one("agent-token")+s.config.one("agent-token-file") != "" {
		if s.agentToken, err = secret("agent-token", "none"); err != nil {
			return err
		}
		agents = s.fullToken("node", s.agentToken)
	}
	for name, text := range map[string]string{"token": s.fullToken("server", s.serverToken), "node-token": s.fullToken("server", s.serverToken), "agent-token": agents} {
		if err := writeFile(s.config.dir("server", name), []byte(text+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) fullToken(user, password string) string {
	return "K10" + s.serverCA.Hash() + "::" + user + ":" + password
}

func (s *server) clusterCIDR() string { return s.config.or("cluster-cidr", "10.42.0.0/16") }

func (s *server) etcdFlags() []string {
	return []string{
		"--name=default", "--data-dir=" + s.config.dir("server", "db", "etcd"), "--log-level=warn",
		"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=https://127.0.0.1:2380", "--initial-advertise-peer-urls=https://127.0.0.1:2380", "--initial-cluster=default=https://127.0.0.1:2380",
		"--client-cert-auth", "--trusted-ca-file=" + s.etcdCA.CertFile, "--cert-file=" + s.tls("etcd/server.crt"), "--key-file=" + s.tls("etcd/server.key"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + s.etcdCA.CertFile, "--peer-cert-file=" + s.tls("etcd/server.crt"), "--peer-key-file=" + s.tls("etcd/server.key"),
		"--unsafe-no-fsync", // a machine that is powered off leaves its writes to the host's kernel
	}
}

func (s *server) apiserverFlags() []string {
	issuer := "https://kubernetes.default.svc." + s.config.or("cluster-domain", "cluster.local")
	return []string{
		"--bind-address=0.0.0.0", "--secure-port=" + s.port, "--advertise-address=" + s.advertise,
		"--tls-cert-file=" + s.tls("serving-kube-apiserver.crt"), "--tls-private-key-file=" + s.tls("serving-kube-apiserver.key"),
		"--client-ca-file=" + s.clientCA.CertFile, "--anonymous-auth=false", "--enable-bootstrap-token-auth",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged", "--profiling=false",
		"--etcd-servers=" + etcdURL, "--etcd-cafile=" + s.etcdCA.CertFile, "--etcd-certfile=" + s.tls("etcd/server.crt"), "--etcd-keyfile=" + s.tls("etcd/server.key"),
		"--kubelet-certificate-authority=" + s.serverCA.CertFile, "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--kubelet-client-certificate=" + s.tls("client-kube-apiserver.crt"), "--kubelet-client-key=" + s.tls("client-kube-apiserver.key"),
		"--requestheader-client-ca-file=" + s.requestCA.CertFile, "--requestheader-allowed-names=system:auth-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + s.tls("client-auth-proxy.crt"), "--proxy-client-key-file=" + s.tls("client-auth-proxy.key"),
		"--service-account-issuer=" + issuer, "--api-audiences=" + issuer + ",k3s",
		"--service-account-key-file=" + s.tls("service.key"), "--service-account-signing-key-file=" + s.tls("service.key"),
		"--service-cluster-ip-range=" + s.serviceCIDR, "--service-node-port-range=" + s.config.or("service-node-port-range", "30000-32767"),
	}
}

func (s *server) controllerManagerFlags() []string {
	flags := []string{
		"--kubeconfig=" + s.cred("controller"), "--controllers=*,tokencleaner", "--use-service-account-credentials", "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port=10257", "--profiling=false", "--terminated-pod-gc-threshold=1000",
		"--root-ca-file=" + s.serverCA.CertFile, "--service-account-private-key-file=" + s.tls("service.key"),
		"--allocate-node-cidrs", "--cluster-cidr=" + s.clusterCIDR(), "--service-cluster-ip-range=" + s.serviceCIDR, "--configure-cloud-routes=false",
	}
	for signer, ca := range map[string]*Authority{"kube-apiserver-client": s.clientCA, "kubelet-client": s.clientCA, "kubelet-serving": s.serverCA, "legacy-unknown": s.serverCA} {
		flags = append(flags, "--cluster-signing-"+signer+"-cert-file="+ca.CertFile, "--cluster-signing-"+signer+"-key-file="+ca.KeyFile)
	}
	return flags
}

func (s *server) schedulerFlags() []string {
	return []string{"--kubeconfig=" + s.cred("scheduler"), "--leader-elect=false", "--bind-address=127.0.0.1", "--profiling=false"}
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

package mistakes

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/test/access"
	"github.com/ortet/ortet/test/azsimserver"
	"github.com/ortet/ortet/test/kubesim"
)

const (
	pool    = "pool1"
	node    = pool + "000000"
	second  = "pool2" // for rows that would wait for another row's lock of pool1
	third   = "pool3"
	fourth  = "pool4"
	aks     = "akspool"
	masters = "masters"
	laptop  = "laptop" // a Node that names no machine of Azure

	viewer   = "viewer" // to the API server: may read, and no more
	readerID = "0a7e7000-0000-4000-8000-000000000009"
	keeperID = "0a7e7000-0000-4000-8000-00000000000a"
)

// A world is a cluster with four pools of two nodes, a node of AKS, a control plane and a
// Node of no cloud, in a simulated Azure. Both are served by TLS on loopback.
type world struct {
	t     *testing.T
	dir   string
	azure *azsim.Server
	kube  *kubesim.Server
	arm   *httptest.Server
	api   *httptest.Server
	roots string // PEM file: who is trusted

	// working is closed once a capture has a pod: it has locked its pool then.
	working chan struct{}
	once    sync.Once
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), working: make(chan struct{})}
	read := kubesim.Grant{PolicyRule: rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}
	review := kubesim.Grant{PolicyRule: rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews"}}}
	w.kube = &kubesim.Server{
		Users: map[string][]kubesim.Grant{"admin": {kubesim.Administrator()}, viewer: {read, review}},
		OnRequest: func(r kubesim.Request) {
			if r.Resource == "pods" && r.Verb == "create" {
				w.once.Do(func() { close(w.working) })
			}
		},
	}
	for _, name := range []string{"default", "kube-system", "ortet-system"} {
		w.kube.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w.azure = &azsim.Server{Seed: 1, Substrate: machines{w: w}, Principals: []azsim.Principal{
		{Name: "owner", ClientID: azsim.DefaultClientID, Secret: azsim.DefaultClientSecret, Roles: []azsim.Grant{{Role: "Owner"}}},
		{Name: "reader", ClientID: readerID, Secret: azsim.DefaultClientSecret, Roles: []azsim.Grant{{Role: "Reader"}}},
		{Name: "keeper", ClientID: keeperID, Secret: azsim.DefaultClientSecret, Roles: []azsim.Grant{{Role: "all but deletes instances", Actions: []string{"*"},
			NotActions: []string{"Microsoft.Compute/virtualMachineScaleSets/delete/action"}}}},
	}}
	w.arm, w.api = serve(w.azure), serve(w.kube)
	t.Cleanup(func() {
		w.azure.Close() // ends what hangs, for which its server would wait
		w.arm.Close()
		w.api.CloseClientConnections()
		w.api.Close()
	})
	must(t, w.azure.Create(t.Context(), &azsim.Spec{}))
	for name, capacity := range map[string]int64{pool: 2, second: 2, third: 2, fourth: 2, aks: 1, masters: 1} {
		must(t, azsimserver.Pool{Name: name, Capacity: capacity, CustomData: "#cloud-config\nruncmd: [join]\n"}.CreateIn(t.Context(), w.azure))
	}
	w.label(aks+"000000", "kubernetes.azure.com/cluster", "MC_shop_shop_westeurope")
	w.label(masters+"000000", "node-role.kubernetes.io/control-plane", "")
	w.put(laptop, "", "")
	w.roots = w.write("roots.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.arm.Certificate().Raw})))
	return w
}

// serve serves by TLS. That clients go away, and trust no certificate, is in the rows.
func serve(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write makes a file of the world and returns its path.
func (w *world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	must(w.t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(w.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (w *world) label(node, name, value string) {
	w.kube.Change("nodes", "", node, func(o runtime.Object) {
		n := o.(*corev1.Node)
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[name] = value
	})
}

func (w *world) put(name, providerID, uuid string) {
	w.kube.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}, Status: corev1.NodeStatus{
		NodeInfo:   corev1.NodeSystemInfo{BootID: "boot of " + name, SystemUUID: uuid, OperatingSystem: "linux", Architecture: "amd64"},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
	}})
}

// machines is a substrate whose computers are the cluster's nodes.
type machines struct {
	azsim.NopSubstrate
	w *world
}

func (m machines) Boot(_ context.Context, c azsim.Computer) error {
	m.w.put(strings.ToLower(c.HostName), "azure://"+c.ResourceID, c.VMID)
	return nil
}

// kubeconfig makes a file of that name for a user of the API server at that URL. A nil ca
// is the right one.
func (w *world) kubeconfig(name, user, server string, ca []byte) string {
	w.t.Helper()
	if ca == nil {
		ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.api.Certificate().Raw})
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "staging",
		"contexts": []any{
			map[string]any{"name": "staging", "context": map[string]any{"cluster": "c", "user": "u"}},
			map[string]any{"name": "production", "context": map[string]any{"cluster": "c", "user": "u"}},
		},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": user}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": server, "certificate-authority-data": base64.StdEncoding.EncodeToString(ca)}}},
	})
	must(w.t, err)
	return w.write(name+".kubeconfig", string(text))
}

// otherCA is the certificate of an authority that signed nothing here.
func (w *world) otherCA() []byte {
	w.t.Helper()
	ca, err := access.NewAuthority(w.t.TempDir(), "ca", "another authority", time.Now)
	must(w.t, err)
	return ca.PEM()
}

// azureJSON writes an azure.json for the Azure at that URL, changed as given: a nil value
// takes a field away.
func (w *world) azureJSON(folder, url string, change map[string]any) string {
	w.t.Helper()
	w.write(folder+"/azurestackcloud.json", encoded(w.t, map[string]any{"name": "AzureStackCloud",
		"resourceManagerEndpoint": url + "/", "activeDirectoryEndpoint": url + "/", "tokenAudience": url + "/", "serviceManagementEndpoint": url + "/"}))
	fields := map[string]any{
		"cloud": "AzureStackCloud", "identitySystem": "adfs", "tenantId": "adfs", "subscriptionId": azsim.DefaultSubscription,
		"resourceGroup": azsim.DefaultResourceGroup, "location": azsim.DefaultLocation,
		"aadClientId": azsim.DefaultClientID, "aadClientSecret": azsim.DefaultClientSecret,
	}
	for name, value := range change {
		if fields[name] = value; value == nil {
			delete(fields, name)
		}
	}
	return w.write(folder+"/azure.json", encoded(w.t, fields))
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return string(text)
}

// bound returns a socket at a port of loopback, which no other process can get until the test
// ends, and its address.
func bound(t *testing.T) (fd int, at *unix.SockaddrInet4, address string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := unix.Getsockname(fd)
	must(t, err)
	at = name.(*unix.SockaddrInet4)
	return fd, at, (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.Port}).String()
}

// refuses returns the address of a port of loopback at which nothing listens.
func refuses(t *testing.T) string {
	t.Helper()
	_, _, address := bound(t)
	return address
}

// drops returns the address of a port of loopback that drops what is sent to it: its queue
// of connections is full, and nothing accepts them.
func drops(t *testing.T) string {
	t.Helper()
	fd, at, address := bound(t)
	must(t, unix.Listen(fd, 0))
	for range 16 { // more than a queue of that length takes: the others wait for it
		c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		must(t, err)
		t.Cleanup(func() { _ = unix.Close(c) })
		if err := unix.Connect(c, at); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatal(err)
		}
	}
	return address
}

package bootstrap

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// What the agent's other rooms do in the same way: know who the node is, read
// files that others write, and ask servers.

// Identify is what tells this node and this boot from others, in lower case: its
// host name, Azure's VM id and the kernel's boot id; "" each where it is not
// known. root "" is this system's.
func Identify(root string) (node, vmID, bootID string) {
	me := identifyNode(rooted(root))
	return nodeName(), me.vmID, me.bootID
}

func rooted(root string) Options {
	if root == "" {
		root = DefaultRoot()
	}
	return Options{Root: root}
}

// Under is where a path of the node with this root lies.
func Under(root, path string) string {
	o := rooted(root)
	return o.under(path)
}

// OpenRegular opens a file for reading: no link out of its folder is followed,
// and nothing that could block or act on being opened is.
func OpenRegular(path string) (*os.File, fs.FileInfo, error) { return openRegular(path) }

// CheckURL says what is wrong with an address that is posted to.
func CheckURL(text string) error { return checkURL(text) }

// Post sends JSON to a server, in a few tries of postTimeout each. caFile has the
// certificates that it is checked against; "": the system's.
func Post(ctx context.Context, target, caFile string, body []byte) error {
	return post(ctx, target, caFile, body)
}

// Keep writes a file that is there wholly or not at all, with mode 0600.
func Keep(path string, text []byte) error { return keep(path, text) }

// Kept is the verdict of this boot; ok is false while there is none. state "" is
// the default below root.
func Kept(root, state, bootID string) (v wire.Verdict, ok bool) {
	o := rooted(root)
	if state == "" {
		state = o.under(defaultState)
	}
	k, err := load(state)
	if err != nil {
		k, err = load(o.under(spareState))
	}
	return k.Verdict, err == nil && k.Outcome != "" && (bootID == "" || strings.EqualFold(k.BootID, bootID))
}

// AskAsKubelet sends one request to the kubelet's API server, with the kubelet's
// own credentials. path is made of the node's name, as the certificate has it;
// body nil sends none. It gives the answer's status code, its line, and its body.
func AskAsKubelet(ctx context.Context, root, method string, path func(node string) string, contentType string, body []byte) (code int, status string, answer []byte, err error) {
	config, full, err := kubeletURL(root, path)
	if err != nil {
		return 0, "", nil, err
	}
	return Ask(ctx, Question{Method: method, URL: full, TLS: config, Within: nodeTimeout, Type: contentType, Body: body})
}

// KubeletLogin is the kubelet's client certificate with its key, and the name that
// it gives the Node. kubeconfig is where the kubelet has its own, below root; "" is
// where kubelets have them. Where there is none yet it is fs.ErrNotExist.
func KubeletLogin(root, kubeconfig string) (pair tls.Certificate, node string, err error) {
	o := rooted(root)
	paths := kubeconfigs()
	if kubeconfig != "" {
		paths = []string{kubeconfig}
	}
	k, _, err := newestKubeconfig(o, paths)
	if err != nil {
		return pair, "", err
	}
	config, node, err := k.login(o)
	if errors.Is(err, errUnsigned) {
		return pair, "", fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	}
	if err != nil {
		return pair, "", fmt.Errorf("reading %s: %w", k.path, err)
	}
	return config.Certificates[0], node, nil
}

// MetadataService is where Azure answers for the machine that asks.
const MetadataService = "http://169.254.169.254"

// AskMetadata asks an instance metadata service, "http://HOST[:PORT]".
func AskMetadata(ctx context.Context, service, path string, within time.Duration) (code int, status string, answer []byte, err error) {
	u, err := url.Parse(service + path)
	if err != nil {
		return 0, "", nil, err
	}
	return Ask(ctx, Question{Method: "GET", URL: u, Within: within, Header: http.Header{"Metadata": {"true"}}})
}

const kubeletPort = "127.0.0.1:10250"

// errNotKubelet says that who answers at the kubelet's port is not who holds the
// serving certificate on the disk.
var errNotKubelet = errors.New("who answers there does not hold the kubelet's serving certificate")

// servingCertificates are where kubelets keep what they answer with.
func servingCertificates() []string {
	return []string{"/var/lib/kubelet/pki/kubelet-server-current.pem", "/var/lib/kubelet/pki/kubelet.crt", "/etc/kubernetes/certs/kubeletserver.crt",
		"/var/lib/rancher/k3s/agent/serving-kubelet.crt", "/var/lib/rancher/rke2/agent/serving-kubelet.crt"}
}

// AskKubelet asks the kubelet of this node itself, with its own client
// certificate: whether that may, its webhook decides.
func AskKubelet(ctx context.Context, root, path string) (code int, status string, answer []byte, err error) {
	o := rooted(root)
	k, _, err := readKubeconfig(o)
	if err != nil {
		return 0, "", nil, err
	}
	config, _, err := k.login(o)
	if err != nil {
		return 0, "", nil, err
	}
	var own [][]byte
	for _, p := range servingCertificates() {
		text, err := k.pem(o, p, "")
		for err == nil {
			var block *pem.Block
			if block, text = pem.Decode(text); block == nil {
				break
			}
			own = append(own, block.Bytes)
		}
	}
	// Its certificate is its own, of no authority's; the disk's copy says which.
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(s tls.ConnectionState) error {
		for _, c := range own {
			if len(s.PeerCertificates) > 0 && bytes.Equal(s.PeerCertificates[0].Raw, c) {
				return nil
			}
		}
		return errNotKubelet
	}
	u, err := url.Parse("https://" + kubeletPort + path)
	if err != nil {
		return 0, "", nil, err
	}
	return Ask(ctx, Question{Method: "GET", URL: u, TLS: config, Within: nodeTimeout})
}

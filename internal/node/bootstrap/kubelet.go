package bootstrap

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"os"
	"time"
)

const (
	// kubeletAddress is where the kubelet serves its health, to its own node only.
	kubeletAddress = "127.0.0.1:10248"
	kubeletTimeout = time.Second
)

// kubeletOnDisk reports whether the node has a unit, or on Windows a program, that runs a
// kubelet.
func kubeletOnDisk(o Options) bool {
	paths := []string{"/k/kubelet.exe"} // where every Windows image for Kubernetes has it
	for _, dir := range []string{"/etc/systemd/system/", "/run/systemd/system/", "/usr/local/lib/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"} {
		for _, unit := range kubeletUnits() {
			paths = append(paths, dir+unit)
		}
	}
	for _, p := range paths {
		if _, err := os.Stat(o.under(p)); err == nil {
			return true
		}
	}
	return false
}

// kubeletCheck asks the kubelet for its health, and remembers the last answer. Its
// zero value is not ready: set address, within and poke.
type kubeletCheck struct {
	question
	address string
	within  time.Duration // how long it may take to answer

	healthy bool
	met     string // what was met where it is not, as "connection refused"
}

func (k *kubeletCheck) ask(ctx context.Context) func() {
	err := healthz(ctx, k.address, k.within)
	return func() {
		k.healthy, k.met = err == nil, ""
		if err != nil {
			k.met = plainError(err)
		}
	}
}

// last is the last answer and when it came; zero where there is none.
func (k *kubeletCheck) last() (asked time.Time, healthy bool, met string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked, k.healthy, k.met
}

// healthz is one HTTP request.
func healthz(ctx context.Context, address string, within time.Duration) error {
	u := &url.URL{Scheme: "http", Host: address, Path: "/healthz"}
	a, err := exchange(ctx, Question{Method: "GET", URL: u, Within: within})
	if err == nil && a.Code != 200 {
		err = errors.New(a.Status)
	}
	return err
}

// plainError is what people know it as, without addresses.
func plainError(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, errRefused):
		return "connection refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in " + kubeletTimeout.String()
	}
	return harmless([]byte(err.Error()))
}

const kubeletPort = "127.0.0.1:10250"

// errNotKubelet means that the listener at the kubelet's port does not have the serving
// certificate on the disk.
var errNotKubelet = errors.New("who answers there does not hold the kubelet's serving certificate")

// servingCertificates are where kubelets keep what they answer with.
func servingCertificates() []string {
	return []string{"/var/lib/kubelet/pki/kubelet-server-current.pem", "/var/lib/kubelet/pki/kubelet.crt", "/etc/kubernetes/certs/kubeletserver.crt",
		"/var/lib/rancher/k3s/agent/serving-kubelet.crt", "/var/lib/rancher/rke2/agent/serving-kubelet.crt"}
}

// AskKubelet asks the kubelet of this node itself, with its own client
// certificate: whether that may, its webhook decides.
func AskKubelet(ctx context.Context, root, path string) (Answer, error) {
	o := rooted(root)
	k, _, err := readKubeconfig(o)
	if err != nil {
		return Answer{}, err
	}
	config, _, err := k.login(o)
	if err != nil {
		return Answer{}, err
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
	// Its certificate is self-signed; the disk's copy is compared.
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
		return Answer{}, err
	}
	return Ask(ctx, Question{Method: "GET", URL: u, TLS: config, Within: nodeTimeout})
}

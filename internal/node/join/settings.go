package join

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/wire"
)

// SettingsFile is where a node's settings are, written by customData or baked into
// its image. They hold no secret.
const SettingsFile = "/etc/ortet/join.json"

// DefaultCallbackPort is where the node answers the server's callback: below 1024, so
// that a pod in the node's network that is not root cannot answer.
const DefaultCallbackPort = 340

const (
	maxSettings = 256 << 10 // bytes
	maxServers  = 16
	maxLabels   = 64
)

// Settings are where to ask for admission, and what for.
type Settings struct {
	// Servers are the admission server's addresses, "https://HOST[:PORT]"; they are
	// tried in this order.
	Servers []string `json:"servers"`
	// CAHash is "sha256:" and the hex digest of the public key (SPKI) of the CA that
	// the servers' certificates have to come from, as kubeadm spells it; several, with
	// commas between, while one CA takes over from another. Nothing else is trusted.
	CAHash string `json:"caHash"`
	// Distribution is wire.Kubelet, wire.K3s or wire.RKE2.
	Distribution string `json:"distribution"`
	// CallbackPort is where the node answers challenges until it is admitted.
	CallbackPort int `json:"callbackPort,omitempty"`
	// NodeLabels and NodeTaints, "KEY=VALUE:EFFECT", are what the Node is registered
	// with.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	NodeTaints []string          `json:"nodeTaints,omitempty"`
	// Registries is the content of k3s's or RKE2's registries.yaml; "" writes none.
	Registries string `json:"registries,omitempty"`
	// Kubelet are paths of an upstream kubelet's; "" each is the default.
	Kubelet KubeletPaths `json:"kubelet,omitzero"`
}

// KubeletPaths are where an upstream kubelet finds what it joins with, and keeps
// what it gets.
type KubeletPaths struct {
	BootstrapKubeconfig string `json:"bootstrapKubeconfig,omitempty"`
	Kubeconfig          string `json:"kubeconfig,omitempty"`
	ClientCA            string `json:"clientCA,omitempty"`
}

// Paths as kubeadm's unit has them.
const (
	bootstrapKubeconfig = "/etc/kubernetes/bootstrap-kubelet.conf"
	kubeletKubeconfig   = "/etc/kubernetes/kubelet.conf"
	clientCA            = "/etc/kubernetes/pki/ca.crt"
)

// ParseSettings reads a settings file strictly: an unknown field is an error. A missing
// field stays as it is in s; Complete checks for missing ones.
func (s *Settings) ParseSettings(text []byte) error {
	if len(text) > maxSettings {
		return fmt.Errorf("%d bytes, more than %d", len(text), maxSettings)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(s); errors.Is(err, io.EOF) {
		return errors.New("it is empty")
	} else if err != nil {
		return fmt.Errorf("reading JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}

// ReadSettings reads the settings of the node with this root; "" is this system's.
func ReadSettings(root, file string) (Settings, error) {
	var s Settings
	f, info, err := bootstrap.OpenRegular(bootstrap.Under(root, file))
	if in := (*fs.PathError)(nil); errors.As(err, &in) {
		err = fmt.Errorf("%s: %w", file, in.Err) // it names a step on the way
	}
	if err != nil {
		return s, fmt.Errorf("reading the settings: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	if info.Size() > maxSettings {
		return s, fmt.Errorf("reading the settings: %s has %d bytes, more than %d", file, info.Size(), maxSettings)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSettings+1))
	if err == nil {
		err = s.ParseSettings(text)
	}
	if err != nil {
		return Settings{}, fmt.Errorf("reading the settings: %s: %w", file, err)
	}
	return s, nil
}

var (
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)
	dnsName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
)

// Complete fills in what may be left out, and returns all errors at once.
func (s Settings) Complete() (Settings, error) {
	s.CallbackPort = cmp.Or(s.CallbackPort, DefaultCallbackPort)
	for _, p := range []struct {
		path     *string
		standard string
	}{{&s.Kubelet.BootstrapKubeconfig, bootstrapKubeconfig}, {&s.Kubelet.Kubeconfig, kubeletKubeconfig}, {&s.Kubelet.ClientCA, clientCA}} {
		*p.path = cmp.Or(*p.path, p.standard)
	}
	var problems []error
	if len(s.Servers) == 0 || len(s.Servers) > maxServers {
		problems = append(problems, fmt.Errorf("%d servers, want 1 to %d", len(s.Servers), maxServers))
	}
	for _, text := range s.Servers {
		if _, err := parseServer(text); err != nil {
			problems = append(problems, err)
		}
	}
	if _, err := s.pins(); err != nil {
		problems = append(problems, err)
	}
	if err := (wire.JoinRequest{Distribution: s.Distribution, CallbackPort: s.CallbackPort}).Validate(); err != nil {
		problems = append(problems, err)
	}
	if len(s.NodeLabels) > maxLabels || len(s.NodeTaints) > maxLabels {
		problems = append(problems, fmt.Errorf("%d labels and %d taints, want at most %d each", len(s.NodeLabels), len(s.NodeTaints), maxLabels))
	}
	for key, value := range s.NodeLabels {
		problems = append(problems, checkLabel(key, value))
	}
	for _, t := range s.NodeTaints {
		problems = append(problems, checkTaint(t))
	}
	if s.Registries != "" && s.Distribution == wire.Kubelet {
		problems = append(problems, errors.New("registries are k3s's and RKE2's; a kubelet's container runtime has its own"))
	}
	for _, p := range [][2]string{{"bootstrapKubeconfig", s.Kubelet.BootstrapKubeconfig}, {"kubeconfig", s.Kubelet.Kubeconfig}, {"clientCA", s.Kubelet.ClientCA}} {
		if !path.IsAbs(p[1]) || path.Clean(p[1]) != p[1] || strings.ContainsFunc(p[1], func(r rune) bool { return r < ' ' }) {
			problems = append(problems, fmt.Errorf("a path %q as %s of kubelet, want an absolute one", p[1], p[0]))
		}
	}
	return s, errors.Join(problems...)
}

// parseServer reads an address of the admission server.
func parseServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("a server %q, want https://HOST[:PORT]", text)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("a server %q, want a port of 1 to 65535", text)
		}
	}
	return u, nil
}

// pins are the digests of CAHash.
func (s Settings) pins() ([][32]byte, error) {
	var pins [][32]byte
	for text := range strings.SplitSeq(s.CAHash, ",") {
		digits, ok := strings.CutPrefix(strings.TrimSpace(text), "sha256:")
		raw, err := hex.DecodeString(digits)
		if !ok || err != nil || len(raw) != 32 {
			return nil, fmt.Errorf("a caHash %q, want sha256: and 64 hex digits", text)
		}
		pins = append(pins, [32]byte(raw))
	}
	return pins, nil
}

// checkLabel takes what a kubelet may set of its own Node: it does not start with
// others. Source: kubernetes pkg/apis/core, staging/src/k8s.io/kubelet/pkg/apis/well_known_labels.go.
func checkLabel(key, value string) error {
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		prefix, name = "", key
	}
	if !labelName.MatchString(name) || ok && (len(prefix) > 253 || !dnsName.MatchString(prefix)) || !labelValue.MatchString(value) {
		return fmt.Errorf("a label %q=%q that Kubernetes does not take", key, value)
	}
	under := func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) }
	if !under("kubernetes.io") && !under("k8s.io") || under("node.kubernetes.io") || under("kubelet.kubernetes.io") {
		return nil
	}
	if slices.Contains([]string{
		"kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/instance-type",
		"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
	}, key) {
		return nil
	}
	return fmt.Errorf("a label %q, which a kubelet may not give its own Node", key)
}

func checkTaint(text string) error {
	rest, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(rest, "=")
	prefix, name, ok := strings.Cut(key, "/")
	if !ok {
		prefix, name = "", key
	}
	if !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, effect) || !labelName.MatchString(name) || ok && !dnsName.MatchString(prefix) || !labelValue.MatchString(value) {
		return fmt.Errorf("a taint %q, want KEY[=VALUE]:NoSchedule, PreferNoSchedule or NoExecute", text)
	}
	return nil
}

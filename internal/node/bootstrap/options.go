package bootstrap

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Kubelet selects whether the kubelet's health counts.
type Kubelet string

// The values of Kubelet.
const (
	KubeletAuto Kubelet = "auto" // it counts where the node has a unit that runs one
	KubeletYes  Kubelet = "yes"
	KubeletNo   Kubelet = "no"
)

// Node selects how far the node has to come in its cluster. It counts where the kubelet's
// health does, and where the API server can be asked with the kubelet's own client
// certificate.
type Node string

// The values of Node.
const (
	NodeReady      Node = "ready"      // its condition Ready is True
	NodeRegistered Node = "registered" // there is a Node of this boot
	NodeNo         Node = "no"         // the API server is not asked
)

// defaultSentinel is that of Cluster API's bootstrap contract.
const defaultSentinel = "/run/cluster-api/bootstrap-success.complete"

// NoSentinel as Options.Sentinel means that none is written: cloud-init's end, AKS's
// provision.json or the requested units show that a boot is over.
const NoSentinel = "none"

// Options are what to wait for, and where to report the verdict. Paths are absolute; those
// of the node (all but State and CAFile) are taken below Root.
type Options struct {
	Root     string        // the node's root; "" is this system's
	Sentinel string        // Cluster API's sentinel, or NoSentinel; "" is the contract's path
	Units    []string      // systemd units, or Windows services, that have to be active
	Kubelet  Kubelet       // "" is KubeletAuto
	Node     Node          // "" is NodeReady
	Deadline time.Duration // from the call on; more than 0
	// Settle is how long the kubelet has to have been healthy, without a restart.
	Settle time.Duration
	// Grace is how long after the boot's end the kubelet may take to become healthy,
	// and how long after that the node to be in the cluster.
	Grace time.Duration
	// After requests a new judgement of this boot: an earlier verdict is not returned,
	// unless the boot succeeded. Zero returns it.
	After     time.Time
	State     string // the verdict's file; "" is the default below Root
	Console   string // a serial console; "" is none
	ReportURL string // where to post the verdict; "" is nowhere
	CAFile    string // PEM certificates that the server of ReportURL is checked against; "" is the system's
}

// DefaultRoot is this system's root.
func DefaultRoot() string {
	if runtime.GOOS == "windows" {
		return `C:\`
	}
	return "/"
}

// Defaults are the options of a node of which nothing special is known.
func Defaults() Options {
	o := Options{Kubelet: KubeletAuto, Node: NodeReady, Deadline: 20 * time.Minute, Settle: 10 * time.Second, Grace: 2 * time.Minute}
	if runtime.GOOS != "windows" {
		o.Console = "/dev/console"
	}
	return o
}

func rooted(root string) Options {
	root = cmp.Or(root, DefaultRoot())
	return Options{Root: root}
}

// Under is where a path of the node with this root lies.
func Under(root, path string) string {
	o := rooted(root)
	return o.under(path)
}

// complete fills in what may be left out, and returns all errors at once.
func (o Options) complete() (Options, error) {
	o.Root = cmp.Or(o.Root, DefaultRoot())
	o.Sentinel = cmp.Or(o.Sentinel, defaultSentinel)
	o.State = cmp.Or(o.State, o.under(defaultState))
	o.Kubelet = cmp.Or(o.Kubelet, KubeletAuto)
	o.Node = cmp.Or(o.Node, NodeReady)
	var problems []error
	if !slices.Contains([]Kubelet{KubeletAuto, KubeletYes, KubeletNo}, o.Kubelet) {
		problems = append(problems, fmt.Errorf("--kubelet %q: want auto, yes or no", o.Kubelet))
	}
	if !slices.Contains([]Node{NodeReady, NodeRegistered, NodeNo}, o.Node) {
		problems = append(problems, fmt.Errorf("--node %q: want ready, registered or no", o.Node))
	}
	if o.Sentinel != NoSentinel && !absolute(o.Sentinel) {
		problems = append(problems, fmt.Errorf("--sentinel %q: want an absolute path, or %q", o.Sentinel, NoSentinel))
	}
	if o.Deadline <= 0 || o.Settle < 0 || o.Grace < 0 {
		problems = append(problems, errors.New("--deadline has to be more than 0, --settle and --grace not less"))
	}
	units := make([]string, 0, len(o.Units))
	for _, u := range o.Units {
		if u == "" || len(u) > 255 || strings.ContainsFunc(u, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || onWindows && r == '\\' }) {
			problems = append(problems, fmt.Errorf("--unit %q: want the name of a unit", u))
		}
		units = append(units, unitName(u))
	}
	o.Units = units
	if o.ReportURL != "" {
		problems = append(problems, CheckURL(o.ReportURL))
	}
	return o, errors.Join(problems...)
}

// question identifies a question: it is made of the options that may change the answer. o
// has to be complete.
func (o Options) question() string {
	units := slices.Clone(o.Units)
	slices.Sort(units)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d %d", o.Sentinel, slices.Compact(units), o.Kubelet, o.Node, o.Settle, o.Grace))
	return hex.EncodeToString(sum[:16])
}

// Validate returns all errors at once.
func (o Options) Validate() error {
	_, err := o.complete()
	return err
}

// CheckURL returns what is wrong with an address that is posted to.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return fmt.Errorf("--report-url %q: want https://HOST[:PORT]/PATH", text)
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "https" || u.Scheme == "http" && ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("--report-url %q: want https", text)
}

// absolute takes the node's notation, which with a root elsewhere may be another
// than this system's.
func absolute(path string) bool {
	return strings.HasPrefix(path, "/") || filepath.IsAbs(path) || onWindows && strings.HasPrefix(path, `\`)
}

// under is where a path of the node lies. A drive that is named is meant, unless
// the node's root is another than this system's.
func (o *Options) under(path string) string {
	if o.Root == DefaultRoot() && filepath.VolumeName(path) != "" {
		return filepath.Clean(path)
	}
	path = path[len(filepath.VolumeName(path)):]
	return filepath.Join(o.Root, filepath.FromSlash(path))
}

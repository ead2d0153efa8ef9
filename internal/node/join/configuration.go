package join

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// Files that are written. Those below /run are written at each start.
const (
	// KubeletArguments holds ORTET_KUBELET_ARGS for the kubelet's unit.
	KubeletArguments = "/run/ortet/kubelet.env"
	// RancherToken is what k3s's or RKE2's agent reads its token from.
	RancherToken = "/run/ortet/token" //nolint:gosec // a path
	// ReadyFile means that an agent may start: in this boot the identity on the disk was
	// found to be this machine's, or it was admitted.
	ReadyFile   = "/run/ortet/joined"
	rancherDrop = "/config.yaml.d/50-ortet.yaml"
	// kubeletDropIns is where ortet-node config changes the kubelet. kubeadm names no
	// such folder, and a kubelet does not start where the one that is named is missing.
	kubeletDropIns = "/etc/kubernetes/kubelet.conf.d"
	registries     = "/registries.yaml"
)

// rancher is the folder of k3s's or RKE2's configuration.
func rancher(distribution string) string { return "/etc/rancher/" + distribution }

// spentToken stands where a token stood that is used up, in its form: an agent wants
// one at each start, and goes by its certificate then. The pin of the CA before it
// counts still.
const spentToken = "::000000.0000000000000000"

// file is what is to be written where.
type file struct {
	path string
	text []byte
	keep bool // one that is there stays
}

var (
	plainToken  = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
	pinnedToken = regexp.MustCompile(`^K10[0-9a-f]{64}::[a-z0-9]{6}\.[a-z0-9]{16}$`)
	pinShape    = regexp.MustCompile(`^K10[0-9a-f]{64}$`)
	maxName     = 253
)

// errGrant is of a server and an agent that do not fit together: the same again would
// make another token, and be the same.
var errGrant = errors.New("the admission server's grant cannot be used")

// checkJoin returns what is wrong with the server's grant, before anything of it is
// written: each value becomes part of a configuration file.
func checkJoin(j wire.Join, m Machine, distribution string) error {
	var problems []error
	if len(j.NodeName) > maxName || !dnsName.MatchString(j.NodeName) {
		problems = append(problems, fmt.Errorf("a Node's name %.80q", j.NodeName))
	}
	id, ok := strings.CutPrefix(j.ProviderID, "azure://")
	if !ok || len(id) > 1<<10 || !resourceIDShape.MatchString(id) {
		problems = append(problems, fmt.Errorf("a provider id %.80q", j.ProviderID))
	}
	if !strings.EqualFold(j.VMID, m.VMID) {
		problems = append(problems, fmt.Errorf("the machine %.80q, while this one is %s", j.VMID, m.VMID))
	}
	if u, err := url.Parse(j.Server); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(j.Server, " \t\r\n\"'\\$`") {
		problems = append(problems, fmt.Errorf("a server %.80q", j.Server))
	}
	token := pinnedToken
	if distribution == wire.Kubelet {
		token = plainToken
	}
	if !token.MatchString(j.Token) {
		problems = append(problems, errors.New("a token of another form than "+distribution+" takes"))
	}
	if distribution == wire.Kubelet && !certificates(j.CA) {
		problems = append(problems, errors.New("no certificate of the CA"))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w: %w", errGrant, err)
	}
	return nil
}

// certificates says whether a PEM text holds some, and nothing else.
func certificates(text []byte) bool {
	for n := 0; ; n++ {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return n > 0 && len(bytes.TrimSpace(text)) == 0
		}
		if block.Type != "CERTIFICATE" {
			return false
		}
	}
}

// configuration is all that this distribution joins with, but the client CA, of which
// it depends on what is there.
func configuration(s Settings, j wire.Join, dropIns bool) []file {
	if s.Distribution == wire.Kubelet {
		return []file{
			{path: KubeletArguments, text: kubeletArguments(s, j.NodeName, j.ProviderID, dropIns)},
			{path: s.Kubelet.BootstrapKubeconfig, text: bootstrapFile(j)},
		}
	}
	files := []file{
		{path: RancherToken, text: []byte(j.Token + "\n")},
		{path: rancher(s.Distribution) + rancherDrop, text: rancherConfig(s, j)},
	}
	if s.Registries != "" {
		files = append(files, file{path: rancher(s.Distribution) + registries, text: []byte(s.Registries)})
	}
	return files
}

// again is what a start of a node that has joined writes anew, since it lay in
// memory.
func again(s Settings, r Record, dropIns bool) []file {
	switch {
	case s.Distribution == wire.Kubelet && r.ProviderID != "":
		return []file{{path: KubeletArguments, text: kubeletArguments(s, r.NodeName, r.ProviderID, dropIns)}}
	case s.Distribution != wire.Kubelet && pinShape.MatchString(r.CAPin):
		return []file{{path: RancherToken, text: []byte(r.CAPin + spentToken + "\n"), keep: true}}
	}
	return nil
}

// dropInsExist says whether the kubelet may be given a folder of drop-ins.
func dropInsExist(t *tree.Tree) bool {
	info, err := t.Stat(kubeletDropIns)
	return err == nil && info.IsDir()
}

// write writes files in their order.
func write(t *tree.Tree, files []file) error {
	for _, f := range files {
		if f.keep {
			if _, err := t.Stat(f.path); err == nil {
				continue
			} else if !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("writing %s: %w", f.path, err)
			}
		}
		if err := put(t, f.path, f.text); err != nil {
			return err
		}
	}
	return nil
}

// bootstrapFile is a kubeconfig with the token. Source: the kubelet's TLS
// bootstrapping, kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping.
func bootstrapFile(j wire.Join) []byte {
	return []byte("# Written by ortet-node join.\napiVersion: v1\nkind: Config\ncurrent-context: bootstrap\n" +
		"clusters:\n- name: cluster\n  cluster:\n    server: " + quote(j.Server) + "\n    certificate-authority-data: " + base64.StdEncoding.EncodeToString(j.CA) + "\n" +
		"users:\n- name: bootstrap\n  user:\n    token: " + quote(j.Token) + "\n" +
		"contexts:\n- name: bootstrap\n  context:\n    cluster: cluster\n    user: bootstrap\n")
}

// kubeletArguments is an environment file of systemd's. Its words hold no blank and
// no quote: checkJoin and Settings.Complete have seen to it.
func kubeletArguments(s Settings, node, providerID string, dropIns bool) []byte {
	words := []string{"--hostname-override=" + node, "--provider-id=" + providerID}
	if len(s.NodeLabels) > 0 {
		words = append(words, "--node-labels="+strings.Join(labels(s), ","))
	}
	if len(s.NodeTaints) > 0 {
		words = append(words, "--register-with-taints="+strings.Join(s.NodeTaints, ","))
	}
	if dropIns {
		words = append(words, "--config-dir="+kubeletDropIns)
	}
	return []byte("# Written by ortet-node join at each start.\nORTET_KUBELET_ARGS=" + strings.Join(words, " ") + "\n")
}

// labels are "KEY=VALUE", sorted.
func labels(s Settings) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s.NodeLabels)) {
		all = append(all, key+"="+s.NodeLabels[key])
	}
	return all
}

// rancherConfig is a drop-in of k3s's or RKE2's config.yaml. Lists are added to what
// other files have. Source: docs.k3s.io/installation/configuration, "Value Merge
// Behavior".
func rancherConfig(s Settings, j wire.Join) []byte {
	var b strings.Builder
	b.WriteString("# Written by ortet-node join.\n")
	line := func(key, value string) { b.WriteString(key + " " + quote(value) + "\n") }
	line("server:", j.Server)
	line("token-file:", RancherToken)
	line("node-name:", j.NodeName)
	list := func(key string, values []string) {
		for i, v := range values {
			if i == 0 {
				b.WriteString(key + "+:\n")
			}
			line("-", v)
		}
	}
	list("kubelet-arg", []string{"provider-id=" + j.ProviderID})
	list("node-label", labels(s))
	list("node-taint", s.NodeTaints)
	return []byte(b.String())
}

// quote is a scalar of YAML: JSON's strings are such.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		return `""` // a string is always JSON
	}
	return string(text)
}

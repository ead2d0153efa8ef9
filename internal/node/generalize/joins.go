package generalize

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
)

// kubeletConfiguration is where flags of the kubelet, k3s or RKE2 are set.
func kubeletConfiguration() []string {
	return []string{
		"/etc/default/kubelet", "/etc/sysconfig/kubelet", "/var/lib/kubelet/kubeadm-flags.env",
		"/etc/systemd/system/*.service", "/etc/systemd/system/*.service.d/*.conf",
		"/usr/lib/systemd/system/kubelet.service", "/usr/lib/systemd/system/kubelet.service.d/*.conf",
		"/lib/systemd/system/kubelet.service", "/lib/systemd/system/kubelet.service.d/*.conf",
		"/etc/systemd/system/k3s*.service.env", "/etc/systemd/system/rke2*.env", "/etc/default/rke2-agent", "/etc/default/k3s*",
	}
}

var (
	kubeconfigFlag = regexp.MustCompile(`--(?:bootstrap-)?kubeconfig[= ]["']?(/[^\s"']+)`)
	k3sTokenVar    = regexp.MustCompile(`(?m)^\s*(?:export\s+)?["']?(?:K3S|RKE2)_(?:AGENT_)?TOKEN(?:_FILE)?\s*[=:]\s*["']?\S`)
	k3sTokenKey    = regexp.MustCompile(`(?m)^\s*(?:agent-)?token(?:-file)?\s*:\s*["']?\S`)
	// ortetJoin finds a unit that runs the join, and an agent's that waits for it: packages have
	// the former in /usr/lib, on each node, and only the latter says that this one joins by it.
	ortetJoin = regexp.MustCompile(`(?m)^\s*(?:Exec\w+\s*=.*\bortet-node\b.*\sjoin\b|(?:Wants|Requires)\s*=.*\bortet-join\.service\b)`)
)

// What ortet-node join leaves on a disk, which serves the donor alone.
const (
	bootstrapKubeconfig = "/etc/kubernetes/bootstrap-kubelet.conf"
	ortetRecord         = "/var/lib/ortet/identity.json"
	ortetDropIn         = "50-ortet.yaml"
)

func joinedByOrtet(c *cleaner, _ string) (bool, error) { return c.t.Exists(ortetRecord) }

// findJoins lists the files by which a clone of this disk can join by itself:
// kubeconfigs that are not a node's own, k3s' and RKE2's tokens, a unit that
// asks for admission.
func findJoins(t *tree.Tree) ([]string, error) {
	var joins []string
	kubeconfigs := []string{bootstrapKubeconfig, "/var/lib/kubelet/bootstrap-kubeconfig", "/etc/kubernetes/bootstrap-kubeconfig", "/var/lib/kubelet/kubeconfig"}
	err := eachFile(t, kubeletConfiguration(), func(at string, data []byte) {
		for _, m := range kubeconfigFlag.FindAllSubmatch(data, -1) {
			kubeconfigs = append(kubeconfigs, path.Clean(string(m[1])))
		}
		if k3sTokenVar.Match(data) || ortetJoin.Match(data) {
			joins = append(joins, "/"+at)
		}
	})
	if err != nil {
		return nil, err
	}
	err = eachFile(t, []string{"/etc/rancher/*/config.yaml", "/etc/rancher/*/config.yaml.d/*.yaml"}, func(at string, data []byte) {
		if k3sTokenKey.Match(data) && path.Base(at) != ortetDropIn {
			joins = append(joins, "/"+at)
		}
	})
	if err != nil {
		return nil, err
	}
	ours, err := t.Exists(ortetRecord)
	if err != nil {
		return nil, err
	}
	for _, file := range slices.Compact(slices.Sorted(slices.Values(kubeconfigs))) {
		if ours && file == bootstrapKubeconfig {
			continue
		}
		ok, err := canJoin(t, file)
		if err != nil {
			return nil, err
		}
		if ok {
			joins = append(joins, file)
		}
	}
	slices.Sort(joins)
	return slices.Compact(joins), nil
}

// canJoin says whether a kubeconfig holds credentials that are not a node's own.
func canJoin(t *tree.Tree, file string) (bool, error) {
	data, err := readOptional(t, file, maxConfig)
	if err != nil || data == nil {
		return false, err
	}
	kc, err := parseKubeconfig(data)
	if err != nil {
		return false, nil //nolint:nilerr // no kubeconfig is no way to join
	}
	for _, u := range kc.Users {
		node, err := u.isNodes(t, path.Dir(file))
		if err != nil {
			return false, err
		}
		if node {
			continue
		}
		if u.User.Token != "" || u.User.KeyData != "" {
			return true, nil
		}
		for _, f := range []string{u.User.TokenFile, u.User.Key} {
			if f == "" {
				continue
			}
			if !path.IsAbs(f) {
				f = path.Join(path.Dir(file), f)
			}
			if ok, err := t.Exists(f); err != nil || ok {
				return ok, err
			}
		}
	}
	return false, nil
}

// eachFile reads every regular file that the patterns match, up to maxConfig.
func eachFile(t *tree.Tree, patterns []string, do func(at string, data []byte)) error {
	seen := map[string]bool{}
	for _, p := range patterns {
		paths, err := t.Glob(p)
		if err != nil {
			return err
		}
		for _, at := range paths {
			if seen[at] || strings.HasSuffix(at, "~") {
				continue
			}
			seen[at] = true
			data, err := readOptional(t, at, maxConfig)
			if err != nil {
				return err
			}
			if data != nil {
				do(at, data)
			}
		}
	}
	return nil
}

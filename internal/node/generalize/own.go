package generalize

import (
	"bytes"
	"encoding/pem"
	"errors"
	"path"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/wire"
)

// maxOwn bounds how many secrets of the donor are searched for.
const maxOwn = 500

// ownSecrets are where the donor's own secrets lie. The rows of the table that remove
// them are Last, so that a run which is repeated knows them too.
func ownSecrets() []ownSecret {
	return []ownSecret{
		{"/var/lib/kubelet/pki/kubelet-client*", ruleKubeletKey, keysIn},
		{"/var/lib/rancher/*/agent/client-kubelet.key", ruleKubeletKey, keysIn},
		{"/var/lib/kubelet/pki/*", ruleServingKey, keysIn},
		{"/var/lib/rancher/*/agent/*.key", ruleServingKey, keysIn},
		{"/etc/kubernetes/*.conf", ruleKubeletKey, nodeKeysIn},
		{"/etc/kubernetes/*kubeconfig*", ruleKubeletKey, nodeKeysIn},
		{"/var/lib/kubelet/*kubeconfig*", ruleKubeletKey, nodeKeysIn},
		{"/etc/ssh/ssh_host_*_key", ruleSSHHostKey, keysIn},
		{"/etc/rancher/node/password", ruleNodePassword, textIn},
		{"/var/lib/kubelet/pods/*/volumes/kubernetes.io~*/*/token", ruleSAToken, tokenIn},
		{"/etc/cni/net.d/*kubeconfig*", ruleSAToken, kubeconfigTokensIn},
		{"/var/lib/systemd/credential.secret", ruleRandomSeed, textIn},
		{"/var/lib/waagent/TransportPrivate.pem", ruleAgentKey, keysIn},
		{"/var/lib/spire/agent/keys.json", ruleAgentIdentity, spireKeysIn},
		{"/opt/spire/data/agent/keys.json", ruleAgentIdentity, spireKeysIn},
		{"/var/lib/netdata/cloud.d/private.pem", ruleAgentIdentity, keysIn},
		{"/opt/netdata/var/lib/netdata/cloud.d/private.pem", ruleAgentIdentity, keysIn},
		{"/etc/salt/pki/minion/minion.pem", ruleAgentIdentity, keysIn},
		{"/etc/puppetlabs/puppet/ssl/private_keys/*.pem", ruleAgentIdentity, keysIn},
		{"/var/lib/puppet/ssl/private_keys/*.pem", ruleAgentIdentity, keysIn},
		{"/etc/chef/client.pem", ruleAgentIdentity, keysIn},
		{"/etc/cinc/client.pem", ruleAgentIdentity, keysIn},
	}
}

type ownSecret struct {
	pattern, rule string
	read          func(t *tree.Tree, at string, data []byte) ([][]byte, error)
}

func (f *facts) learnSecrets(t *tree.Tree) error {
	known := map[string]bool{}
	for _, o := range ownSecrets() {
		paths, err := t.Glob(o.pattern)
		if err != nil {
			return err
		}
		for _, at := range paths {
			data, err := readOptional(t, at, maxConfig)
			if errors.Is(err, tree.ErrTooLarge) {
				continue
			}
			if err != nil {
				return err
			}
			values, err := o.read(t, at, data)
			if err != nil {
				return err
			}
			for _, v := range values {
				secret := redact.Secret{Rule: o.rule, Class: wire.NodeIdentity, Value: v}
				if known[string(v)] || len(f.secrets) >= maxOwn {
					continue
				}
				known[string(v)] = true
				// What is too short or too plain is met by chance, and is no secret.
				if _, err := redact.NewKnown([]redact.Secret{secret}); err == nil {
					f.secrets = append(f.secrets, secret)
				}
			}
		}
	}
	return nil
}

func textIn(_ *tree.Tree, _ string, data []byte) ([][]byte, error) {
	return [][]byte{bytes.TrimSpace(data)}, nil
}

// tokenIn returns a JWT's signature: its header is that of every token of the cluster.
func tokenIn(_ *tree.Tree, _ string, data []byte) ([][]byte, error) {
	return [][]byte{signatureOf(string(data))}, nil
}

func signatureOf(token string) []byte {
	parts := bytes.Split(bytes.TrimSpace([]byte(token)), []byte("."))
	if len(parts) != 3 {
		return nil
	}
	return parts[2]
}

func kubeconfigTokensIn(_ *tree.Tree, _ string, data []byte) ([][]byte, error) {
	kc, err := parseKubeconfig(data)
	if err != nil {
		return nil, nil //nolint:nilerr // no kubeconfig has no token
	}
	var tokens [][]byte
	for _, u := range kc.Users {
		tokens = append(tokens, signatureOf(u.User.Token))
	}
	return tokens, nil
}

// nodeKeysIn returns the keys that are embedded in a kubeconfig of a node's identity.
func nodeKeysIn(t *tree.Tree, at string, data []byte) ([][]byte, error) {
	kc, err := parseKubeconfig(data)
	if err != nil {
		return nil, nil //nolint:nilerr // no kubeconfig has no keys
	}
	var keys [][]byte
	for _, u := range kc.Users {
		node, err := u.isNodes(t, path.Dir(at))
		if err != nil {
			return nil, err
		}
		if node {
			keys = append(keys, privateKeysIn(decodeBase64(u.User.KeyData))...)
		}
	}
	return keys, nil
}

func keysIn(_ *tree.Tree, _ string, data []byte) ([][]byte, error) { return privateKeysIn(data), nil }

// privateKeysIn returns the private keys among PEM blocks.
func privateKeysIn(data []byte) [][]byte {
	var keys [][]byte
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return keys
		}
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			keys = append(keys, block.Bytes)
		}
	}
}

package redact

import (
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// Names of the rules. They are stable: reports and documentation use them.
const (
	ruleRegistry     = "registry-credential"
	ruleSAS          = "azure-sas"
	ruleStorageKey   = "azure-storage-key"
	ruleConnection   = "connection-string"
	ruleAzureCache   = "azure-token-cache"
	ruleAzureSecret  = "azure-service-principal"
	ruleAzureCloud   = "azure-client-secret"
	ruleGitHub       = "github-token"
	ruleGitLab       = "gitlab-token"
	ruleSlack        = "slack-token"
	ruleNPM          = "npm-token"
	rulePyPI         = "pypi-token"
	ruleAWS          = "aws-key"
	ruleGoogle       = "google-key"
	ruleStripe       = "stripe-key"
	ruleSendGrid     = "sendgrid-key"
	ruleTwilio       = "twilio-key"
	ruleDatadog      = "datadog-key"
	ruleVault        = "vault-token"
	ruleTerraform    = "terraform-token"
	ruleTailscale    = "tailscale-key"
	ruleAge          = "age-key"
	ruleService      = "service-token"
	ruleWebhook      = "webhook-url"
	ruleJWT          = "jwt"
	ruleHeader       = "authorization-header"
	ruleNetrc        = "netrc"
	rulePgpass       = "pgpass"
	ruleMySQL        = "mysql-password"
	ruleGit          = "git-credentials"
	ruleURL          = "url-password"
	ruleCloudInit    = "cloud-init-password"
	ruleHash         = "password-hash"
	ruleWireGuard    = "wireguard-key"
	ruleWiFi         = "wifi-psk"
	ruleSNMP         = "snmp-community"
	ruleOpenVPN      = "openvpn-key"
	ruleKeytab       = "keytab"
	rulePuTTY        = "putty-key"
	rulePGP          = "pgp-private-key"
	rulePKCS12       = "pkcs12"
	ruleJKS          = "java-keystore"
	ruleSSH          = "ssh-private-key"
	ruleSecretFile   = "secret-file"
	ruleCommand      = "command-password"
	ruleNamed        = "named-secret"
	rulePrivateKey   = "private-key"
	ruleBootstrap    = "bootstrap-token"
	ruleK3s          = "k3s-token"
	ruleCertificates = "kubeadm-certificate-key"
	ruleJoin         = "cluster-join-token"
	rulePull         = "node-registry-credential"
	ruleStore        = "cluster-store"
	ruleCilium       = "cilium-ipsec-key"
	ruleInstance     = "cloud-init-instance"
)

// Rules lists the rules by form, for docs and reports.
func Rules() []Rule {
	const node, pool, other = wire.NodeIdentity, wire.PoolCredential, wire.OtherSecret
	return []Rule{
		{ruleStore, node, "a store of a cluster's Secrets and tokens: etcd's member/snap and member/wal, k3s' state.db, and copies of them"},
		{ruleCilium, node, "a key of Cilium's IPsec encryption, which comes from a Secret"},
		{ruleInstance, node, "cloud-init's data source of this instance (obj.pkl), which holds customData"},
		{ruleBootstrap, pool, "a bootstrap token: kubeadm join --token, a token in a configuration"},
		{ruleCertificates, pool, "the key of the control plane's uploaded certificates (--certificate-key)"},
		{ruleK3s, pool, "k3s' or RKE2's token (K3S_TOKEN, RKE2_TOKEN, --token, K10…::server:…)"},
		{ruleJoin, pool, "a join token of MicroK8s or Docker Swarm"},
		{ruleAzureCloud, pool, "a service principal's secret in a cloud provider's configuration (azure.json)"},
		{rulePull, pool, "a registry's password or token that the kubelet or the container runtime reads: one in " + strings.Join(pullFolders(), ", ")},
		{rulePrivateKey, pool, "a private key in PEM, also indented, escaped or in base64: every clone would hold it"},
		{ruleRegistry, other, "another registry's password or token (docker, podman, Helm, Docker Hub)"},
		{ruleSAS, other, "the signature of a shared access signature (sig=)"},
		{ruleStorageKey, other, "a storage account's key"},
		{ruleConnection, other, "the key or password of a connection string"},
		{ruleAzureCache, other, "tokens that az, azd or kubelogin keep"},
		{ruleAzureSecret, other, "a service principal's secret (AZURE_CLIENT_SECRET, ARM_CLIENT_SECRET, …Q~…), or a token of Azure DevOps"},
		{ruleGitHub, other, "a token of GitHub"},
		{ruleGitLab, other, "a token of GitLab"},
		{ruleSlack, other, "a token of Slack"},
		{ruleNPM, other, "a token or password of an npm registry"},
		{rulePyPI, other, "a token or password of PyPI"},
		{ruleAWS, other, "an access key of AWS"},
		{ruleGoogle, other, "a key of Google's: of an API, a service account, gcloud"},
		{ruleStripe, other, "a key of Stripe"},
		{ruleSendGrid, other, "a key of SendGrid"},
		{ruleTwilio, other, "a key of Twilio"},
		{ruleDatadog, other, "a key of Datadog"},
		{ruleVault, other, "a token of HashiCorp Vault"},
		{ruleTerraform, other, "a token of Terraform Cloud"},
		{ruleTailscale, other, "a key of Tailscale"},
		{ruleAge, other, "a secret key of age"},
		{ruleService, other, "a token of another service that is known by how it begins"},
		{ruleWebhook, other, "a webhook's address that is its secret (Slack, Teams, Discord, Telegram)"},
		{ruleJWT, other, "a JWT that is no Kubernetes service account's"},
		{ruleHeader, other, "an Authorization header"},
		{ruleNetrc, other, "a password in .netrc, or in apt's auth.conf"},
		{rulePgpass, other, "a password in .pgpass"},
		{ruleMySQL, other, "a password in .my.cnf, or another option file of MySQL's"},
		{ruleGit, other, "a password in .git-credentials"},
		{ruleURL, other, "a password or token in a URL (proxies, package sources, databases)"},
		{ruleCloudInit, other, "a password in cloud-init's user-data or configuration (passwd, chpasswd)"},
		{ruleHash, other, "the hash of a password of an account that is not locked (shadow, htpasswd)"},
		{ruleWireGuard, other, "a key of WireGuard"},
		{ruleWiFi, other, "a Wi-Fi network's key"},
		{ruleSNMP, other, "an SNMP community or user's password"},
		{ruleOpenVPN, other, "a static key of OpenVPN"},
		{ruleKeytab, other, "a Kerberos keytab"},
		{rulePuTTY, other, "a private key of PuTTY"},
		{rulePGP, other, "a private key of OpenPGP"},
		{rulePKCS12, other, "a PKCS#12 file (.pfx) with a private key"},
		{ruleJKS, other, "a Java keystore with a private key"},
		{ruleSSH, other, "an SSH private key"},
		{ruleSecretFile, other, "a file that is a secret by itself (.erlang.cookie, munge.key, KeePass), or holds one word and is named for it"},
		{ruleCommand, other, "a password on a command line, in a script, unit or shell history"},
		{ruleNamed, other, "another value that its name shows to be a password, token, secret or key"},
	}
}

func classOf(rule string) wire.SecretClass {
	switch rule {
	case ruleStore, ruleCilium, ruleInstance:
		return wire.NodeIdentity
	case ruleBootstrap, ruleCertificates, ruleK3s, ruleJoin, ruleAzureCloud, rulePull, rulePrivateKey:
		return wire.PoolCredential
	}
	return wire.OtherSecret
}

// pullFolders are where the kubelet and container runtimes read what they fetch images
// with: without it a clone starts no pod. The agent removes no file there.
func pullFolders() []string {
	return []string{"/var/lib/kubelet/", "/etc/containerd/", "/etc/crio/", "/etc/kubernetes/", "/etc/rancher/"}
}

func isPullFile(path string) bool {
	return slices.ContainsFunc(pullFolders(), func(folder string) bool { return strings.HasPrefix("/"+path, folder) })
}

package generalize

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/wire"
)

// everything accepts all that can be accepted.
func everything(o *Options) {
	accept(o)
	for _, dir := range []string{"etc", "home", "opt", "root", "run", "srv", "swap", "usr", "var"} {
		o.AcceptSecrets = append(o.AcceptSecrets, "/"+dir+"/")
	}
}

func spireKeys(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	j, err := json.Marshal(map[string]any{"keys": map[string][]byte{"agent-svid-A": der}})
	if err != nil {
		t.Fatal(err)
	}
	return string(j)
}

// sqlite is a page of a database of SQLite's that holds the text.
func sqlite(text string) string {
	return "SQLite format 3\x00" + strings.Repeat("\x00", 84) + text + strings.Repeat("\x00", 512)
}

// foundAt is the gravest finding at a path below the root.
func foundAt(r wire.GeneralizeReport, at string) wire.SecretFinding {
	i := slices.IndexFunc(r.Findings, func(f wire.SecretFinding) bool { return f.Path == "/"+at })
	if i < 0 {
		return wire.SecretFinding{}
	}
	return r.Findings[i]
}

// No flag ships the identity of another agent: it is removed, or the disk is refused for
// it as for a node's own.
func TestHole06AgentIdentities(t *testing.T) {
	t.Parallel()
	key := func() string { return string(keyPEM(newKey(t))) }
	teleport := func() string {
		return sqlite(`/ids/kube/current{"spec":{"key":"` + base64.StdEncoding.EncodeToString([]byte(key())) + `"}}`)
	}
	const guid = "a1b2c3d4-e5f6-7890-abcd-ef1234567890"
	nebula := string(pem.EncodeToMemory(&pem.Block{Type: "NEBULA X25519 PRIVATE KEY", Bytes: ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", 32)))[32:]}))
	files := map[string]string{
		"etc/chef/client.pem":                                       key(),
		"etc/cinc/client.pem":                                       key(),
		"etc/datadog-agent/auth_token":                              strings.Repeat("0a", 32),
		"etc/datadog-agent/ipc_cert.pem":                            key(),
		"etc/insights-client/machine-id":                            guid,
		"etc/netbird/config.json":                                   `{"PrivateKey":"` + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("wg", 16))) + `","ManagementURL":{}}`,
		"etc/nebula/host.key":                                       nebula,
		"etc/openvswitch/system-id.conf":                            guid,
		"etc/puppetlabs/puppet/ssl/private_keys/pool1.example.pem":  key(),
		"etc/qualys/hostid":                                         guid,
		"etc/rancher/agent/cattle-id":                               strings.Repeat("0a", 32),
		"etc/salt/pki/minion/minion.pem":                            key(),
		"etc/tenable_tag":                                           guid,
		"opt/consul/node-id":                                        guid,
		"opt/consul/serf/local.snapshot":                            "alive: x 10.0.0.4:8301",
		"opt/Elastic/Agent/fleet.enc":                               "v2\x00encrypted",
		"opt/nessus_agent/var/nessus/uuid":                          guid,
		"opt/netdata/var/lib/netdata/cloud.d/private.pem":           key(),
		"opt/nomad/data/client/client-id":                           guid,
		"opt/nomad/data/client/secret-id":                           guid,
		"opt/orbit/secret-orbit-node-key.txt":                       "c3ecAc2iwRoJ3NAJsELq9CcfKPNLgK1a",
		"opt/spire/data/agent/agent-data.json":                      `{"svid":["x"],"bundle":["x"]}`,
		"opt/spire/data/agent/keys.json":                            spireKeys(t),
		"opt/splunkforwarder/etc/instance.cfg":                      "[general]\nguid = " + guid + "\n",
		"run/cilium/state/cilium_wg0.key":                           strings.Repeat("wg", 16),
		"run/flannel/wgkey":                                         base64.StdEncoding.EncodeToString([]byte(strings.Repeat("wg", 16))),
		"srv/elastic/fleet.enc":                                     "v2\x00encrypted",
		"srv/netdata/cloud.d/private.pem":                           key(),
		"srv/tailscaled.state":                                      `{"_machinekey":"cHJpdmtleTowYTBhMGE="}`,
		"srv/spire/keys.json":                                       spireKeys(t),
		"srv/teleport/proc/sqlite.db":                               teleport(),
		"usr/lib/nebula/pki/host.pem":                               nebula,
		"var/cache/netdata/status-netdata.json":                     guid,
		"var/lib/consul/node-id":                                    guid,
		"var/lib/dynatrace/oneagent/agent/config/ruxithost.id":      "0x1a2b3c4d5e6f7a8b",
		"var/lib/elastic-agent-managed/kube-system/state/fleet.enc": "v2\x00encrypted",
		"var/lib/elastic-agent/fleet.enc":                           "v2\x00encrypted",
		"var/lib/filebeat/meta.json":                                `{"uuid":"` + guid + `"}`,
		"var/lib/kilo/key":                                          base64.StdEncoding.EncodeToString([]byte(strings.Repeat("wg", 16))),
		"var/lib/landscape/client/broker.bpickle":                   "secure-id",
		"var/lib/longhorn/longhorn-disk.cfg":                        `{"diskUUID":"` + guid + `"}`,
		"var/lib/netbird/default.json":                              `{"PrivateKey":"x"}`,
		"var/lib/netdata/cloud.d/claimed_id":                        guid,
		"var/lib/netdata/cloud.d/private.pem":                       key(),
		"var/lib/netdata/registry/netdata.public.unique.id":         guid,
		"var/lib/netdata/status-netdata.json":                       guid,
		"var/lib/puppet/ssl/private_keys/pool1.example.pem":         key(),
		"var/lib/rancher/agent/rancher2_connection_info.json":       `{"kubeConfig":"x","secretName":"y"}`,
		"var/lib/spire/agent/keys.json":                             spireKeys(t),
		"var/lib/tailscale/tailscaled.state":                        `{"_machinekey":"cHJpdmtleTowYTBhMGE="}`,
		"var/lib/teleport/host_uuid":                                guid,
		"var/lib/teleport/proc/sqlite.db":                           teleport(),
		"var/lib/zerotier-one/authtoken.secret":                     "0a1b2c3d4e5f6g7h8i9j0k1l",
		"var/lib/zerotier-one/identity.secret":                      "8056c2e21c:0:" + strings.Repeat("0a", 64),
		"var/osquery/osquery.db/CURRENT":                            "MANIFEST-000001",
		"var/ossec/etc/client.keys":                                 "014 pool any " + strings.Repeat("0a", 32) + "\n",
	}
	d := newDonor(t)
	d.write(files)
	refused := d.run(everything)
	wantOutcome(t, refused, wire.SecretsFound)
	for _, f := range refused.Findings {
		if f.Accepted {
			continue
		}
		if f.Rule != ruleAgentIdentity || f.Class != wire.NodeIdentity || !strings.Contains(f.Detail, ":") {
			t.Errorf("%+v, want another agent's identity and what to do", f)
		}
		if err := os.Remove(filepath.Join(d.dir, f.Path)); err != nil {
			t.Fatal(err)
		}
	}
	wantOutcome(t, d.run(everything), wire.Generalized)
	for at := range files {
		if _, err := os.Lstat(filepath.Join(d.dir, at)); !missing(err) {
			t.Errorf("/%s was shipped", at)
		}
	}
}

// A clone joins Consul by the keyring that all its agents share.
func TestHole06ConsulKeyringStays(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	keyrings := []string{"opt/consul/serf/local.keyring", "var/lib/consul/serf/local.keyring"}
	for _, at := range keyrings {
		d.write(map[string]string{at: `["r+pUD3yH8bZVHxPrBwmI2g=="]`, path.Dir(at) + "/local.snapshot": "alive: x 10.0.0.4:8301"})
	}
	wantOutcome(t, d.run(everything), wire.Generalized)
	for _, at := range keyrings {
		if _, err := os.Lstat(filepath.Join(d.dir, at)); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(d.dir, path.Dir(at), "local.snapshot")); !missing(err) {
			t.Errorf("the snapshot beside /%s was shipped", at)
		}
	}
}

// A copy of another agent's key is that agent's identity too, and not a pool credential.
func TestHole06CopiesOfAgentKeys(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	var copies []string
	for i, at := range []string{
		"etc/chef/client.pem", "etc/puppetlabs/puppet/ssl/private_keys/a.pem", "etc/salt/pki/minion/minion.pem", "opt/spire/data/agent/keys.json",
		"var/lib/netdata/cloud.d/private.pem", "var/lib/spire/agent/keys.json",
	} {
		content := string(keyPEM(newKey(t)))
		if path.Base(at) == "keys.json" {
			content = spireKeys(t)
		}
		copies = append(copies, fmt.Sprintf("root/backup-%d", i))
		d.write(map[string]string{at: content, copies[i]: content})
	}
	r := d.run(everything)
	wantOutcome(t, r, wire.SecretsFound)
	for _, at := range copies {
		if f := foundAt(r, at); f.Class != wire.NodeIdentity {
			t.Errorf("%s: finding %+v, want a node's identity", at, f)
		}
		if err := os.Remove(filepath.Join(d.dir, at)); err != nil {
			t.Fatal(err)
		}
	}
	wantOutcome(t, d.run(everything), wire.Generalized)
}

// The content of a swap file that a unit names is overwritten; one that nothing names is
// found.
func TestHole06SwapFiles(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("\x00", swapHeader-10) + "SWAPSPACE2" + strings.Repeat("memory of the donor ", 1000)
	for unit, text := range map[string]string{
		"etc/systemd/system/swap-file.swap":                "[Unit]\nDescription=swap\n[Swap]\nWhat=/swap/file\n",
		"etc/systemd/system/swap-file.swap.d/10-what.conf": "[Swap]\nWhat = \"/swap/file\"\n",
		"usr/lib/systemd/system/swap-file.swap":            "[Swap]\nWhat=/swap/file\n",
	} {
		t.Run(unit, func(t *testing.T) {
			t.Parallel()
			d := newDonor(t)
			d.write(map[string]string{unit: text, "swap/file": content})
			wantOutcome(t, d.run(inspecting), wire.Generalized)
			wantOutcome(t, d.run(nil), wire.Generalized)
			if got := d.read("swap/file"); len(got) != len(content) || got[:swapHeader] != content[:swapHeader] || strings.Trim(got[swapHeader:], "\x00") != "" {
				t.Error("memory of the donor is left in the swap file, or its header is not")
			}
		})
	}
	d := newDonor(t)
	d.write(map[string]string{"swap/file": content})
	wantOutcome(t, d.run(accept), wire.SecretsFound)
	wantOutcome(t, d.run(func(o *Options) { accept(o); o.RemoveSecrets = true }), wire.Generalized)
	if _, err := os.Lstat(filepath.Join(d.dir, "swap/file")); !missing(err) {
		t.Errorf("the swap file: %v, want it gone", err)
	}
}

// What the preflight of a capture reads of a running node includes fstab, which no row changes.
func TestHole06InspectionReadsFstab(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	d.write(map[string]string{"etc/fstab": "//logs.example/s /mnt cifs username=logs,password=Kq7vX2mW9pLs4TzR,vers=3.1.1 0 0\n"})
	wantOutcome(t, d.run(inspecting), wire.SecretsFound)
}

// No flag ships a key file by which crypttab opens a volume. Others in systemd's folder of
// keys may be accepted, and stay: the node may need them to boot.
func TestHole06LUKSKeyFiles(t *testing.T) {
	t.Parallel()
	d := newDonor(t)
	key := "\x01\x02\x00" + strings.Repeat("\x80\x91\x00", 100)
	d.write(map[string]string{
		"etc/crypttab":                    "# name device key options\ndata UUID=1 /etc/luks/data.bin luks\nlogs UUID=2 /srv/link\nswap /dev/sdb2 /dev/urandom swap\nvar UUID=3 none\ngone UUID=4 /srv/gone\n",
		"etc/luks/data.bin":               key,
		"srv/key":                         key,
		"etc/cryptsetup-keys.d/var.key":   key,
		"etc/cryptsetup-keys.d/other.key": key,
	})
	if err := os.Symlink("key", filepath.Join(d.dir, "srv/link")); err != nil {
		t.Fatal(err)
	}
	r := d.run(func(o *Options) { everything(o); o.RemoveSecrets = true })
	wantOutcome(t, r, wire.SecretsFound)
	for _, at := range []string{"etc/luks/data.bin", "srv/key", "etc/cryptsetup-keys.d/var.key"} {
		if f := foundAt(r, at); f.Class != wire.NodeIdentity || f.Rule != ruleLUKSKey || f.Detail == "" {
			t.Errorf("%s: %+v, want a node's identity", at, f)
		}
		if err := os.Remove(filepath.Join(d.dir, at)); err != nil {
			t.Fatal(err)
		}
	}
	r = d.run(func(o *Options) { accept(o); o.RemoveSecrets = true })
	wantOutcome(t, r, wire.SecretsFound)
	if f := foundAt(r, "etc/cryptsetup-keys.d/other.key"); !strings.Contains(f.Detail, "boot") {
		t.Errorf("%+v, want that it stays for the boot", f)
	}
	wantOutcome(t, d.run(everything), wire.Generalized)
}

// No flag ships a store of a cluster's tokens, Cilium's key or cloud-init's pickled data
// source, wherever it lies; secrets in instance data are found.
func TestHole06Stores(t *testing.T) {
	t.Parallel()
	secret := "/registry/secrets/kube-system/bootstrap-token-abcdef\x10\x02\x18\x02\x20\x01*\xe0k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x12\x20"
	boltdb := strings.Repeat("\x00", 16) + "\xed\xda\x0c\xed\x02\x00\x00\x00" + strings.Repeat("\x00", 100)
	hex := strings.Repeat("0123456789abcdef", 2)
	files := map[string]string{
		"srv/etcd/member/snap/db":                boltdb,
		"srv/etcd/member/wal/0000-0000.wal":      strings.Repeat("\x04\x00\x00\x80", 20) + "proposal",
		"var/backups/etcd-snapshot.db":           boltdb + secret,
		"root/k3s/server/db/state.db":            sqlite("CREATE TABLE kine"),
		"root/state.sqlite":                      sqlite(secret),
		"root/state.sqlite-wal":                  "\x37\x7f\x06\x82" + strings.Repeat("\x00", 40) + strings.ReplaceAll(secret, "k8s\x00", "k8s:enc:aescbc:v1:key1:"),
		"etc/ipsec/keys":                         "3+ rfc4106(gcm(aes)) " + hex + "01234567 128\n",
		"srv/cilium/keys":                        "1 hmac(sha256) " + hex + " cbc(aes) " + hex + "\n",
		"srv/cloud/obj.pkl":                      "\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c#cloudinit.sources.DataSourceAzure\x94\x8c\x0fDataSourceAzure\x94\x93\x94\x8c\x0cuserdata_raw\x94B\x00\x01\x00\x00#!/bin/sh",
		"srv/cloud/instance-data-sensitive.json": `{"ds":{"meta_data":{"imds":{"compute":{"userData":"` + base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\nDB_PASSWORD=Kq7vX2mW9pLs4TzR ./install.sh\n")) + `"}}}}}`,
		"srv/cloud/instance-data.json":           `{"userdata":"ci-b64:` + base64.StdEncoding.EncodeToString([]byte(zip(t, "#cloud-config\nruncmd:\n- [install, --password, Kq7vX2mW9pLs4TzR]\n"))) + `"}`,
	}
	d := newDonor(t)
	d.write(files)
	r := d.run(everything)
	wantOutcome(t, r, wire.SecretsFound)
	for at := range files {
		want := wire.NodeIdentity
		if strings.HasSuffix(at, ".json") {
			want = wire.OtherSecret
		}
		if f := foundAt(r, at); f.Class != want || f.Accepted != (want == wire.OtherSecret) {
			t.Errorf("/%s: finding %+v, want class %s", at, f, want)
		}
		if err := os.Remove(filepath.Join(d.dir, at)); err != nil {
			t.Fatal(err)
		}
	}
	wantOutcome(t, d.run(nil), wire.Generalized)
}

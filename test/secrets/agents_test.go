package secrets

import "strings"

// agents is identities of other agents, and stores of tokens. These were planted with
// their rules at hand.
func agents(g *gen) []plant {
	var a plants
	const kind = "identity of another agent"
	add := func(path, wrap, text string) { a.add(kind, identity, path, wrap, text) }
	spire := func() string {
		return g.jsonOf(map[string]any{"keys": map[string]string{"agent-svid-B": data(g.pkcs8(g.ec()))}})
	}
	add("var/lib/spire/agent/keys.json", "SPIRE", spire())
	add("srv/spire/agent/keys.json", "SPIRE, another data_dir", spire())
	add("var/lib/teleport/host_uuid", "Teleport", g.uuid())
	add("srv/teleport/proc/sqlite.db", "Teleport, another data_dir", sqlitePage(g, "/ids/node/current"+g.jsonOf(map[string]any{"spec": map[string]string{"key": data(rsaPEM(g.rsa()))}})))
	add("var/lib/netdata/registry/netdata.public.unique.id", "Netdata's GUID", g.uuid())
	add("var/lib/netdata/cloud.d/private.pem", "Netdata", string(rsaPEM(g.rsa())))
	add("opt/Elastic/Agent/fleet.enc", "Elastic Agent", string(g.bytes(900)))
	add("var/lib/tailscale/tailscaled.state", "Tailscale", g.jsonOf(map[string]string{"_machinekey": data([]byte("privkey:" + g.hex(64)))}))
	add("var/ossec/etc/client.keys", "Wazuh", "014 "+donorName+" any "+g.hex(64)+"\n")
	add("etc/puppetlabs/puppet/ssl/private_keys/pool1.example.pem", "Puppet", string(rsaPEM(g.rsa())))
	add("etc/netbird/config.json", "NetBird", g.jsonOf(map[string]string{"ManagementURL": "https://api.example:443", "PrivateKey": g.b64(32)}))
	const store = "store of tokens"
	keep := func(path, wrap, text string) { a.add(store, identity, path, wrap, text) }
	secret := func() string {
		return "/registry/secrets/kube-system/bootstrap-token-" + g.of(lower, 6) + "\x10\x9a\x03\x18\x9a\x03\x20\x01*\x8c\x02k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x12\xf7\x01" + g.of(lower+digits, 16)
	}
	keep("root/etcd/member/snap/db", "etcd's folder", strings.Repeat("\x00", 16)+"\xed\xda\x0c\xed\x02"+string(g.bytes(200)))
	keep("root/etcd/member/wal/0000000000000000-0000000000000000.wal", "etcd's log", string(g.bytes(300)))
	keep("var/backups/etcd.snapshot", "etcdctl snapshot save", strings.Repeat("\x00", 16)+"\xed\xda\x0c\xed\x02"+secret())
	keep("var/backups/kine.sqlite", "k3s' database", sqlitePage(g, secret()))
	keep("etc/ipsec/keys", "Cilium's key", "3+ rfc4106(gcm(aes)) "+g.hex(40)+" 128\n")
	keep("root/obj.pkl", "cloud-init's data source", "\x80\x04\x95\x20\x00\x00\x00\x00\x00\x00\x00\x8c#cloudinit.sources.DataSourceAzure\x94\x8c\x0cuserdata_raw\x94B\x40\x00\x00\x00#!/bin/sh\nregister "+g.b62(24))
	return a
}

// sqlitePage is a page of a database of SQLite's.
func sqlitePage(g *gen, text string) string {
	return "SQLite format 3\x00" + string(g.bytes(84)) + text + strings.Repeat("\x00", 256)
}

package nodeconfig

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// What no configuration may name: ortet refuses it before it signs, and the agent before
// it changes anything. Whoever signs is root on the nodes in any case; the lists are
// against mistakes that cut a node off, take its identity, or end Ortet on it.

const (
	useUnits    = "is written from spec.units; use that"
	otherUnits  = "makes or changes units outside of spec.units; use that"
	useKubelet  = "is written from spec.kubelet; use that"
	useMirrors  = "is written from spec.registryMirrors; use that"
	ownFile     = "is Ortet's own; a document cannot set it"
	identity    = "is the machine's identity; a document cannot set it"
	credentials = "holds credentials of the node; a document cannot set it" // #nosec G101 -- a sentence
	accounts    = "decides who may log in; a document cannot set it as a whole"
	boots       = "decides whether the machine boots; set it in a new image"
	ofImage     = "is of the image's packages; set it in a new image, or use /usr/local"
	runsNode    = "runs the node's pods; set it in a new image"
	ofKernel    = "is the kernel's or lost at boot; a document cannot set it"
)

// refusedPaths are patterns of paths that no file may have, nor lie below, and why. The
// first that matches counts. Paths are as refusedPath spells them.
var refusedPaths = []struct{ pattern, cause string }{
	{"/etc/systemd/system", useUnits}, {"/usr/lib/systemd/system", useUnits}, {"/usr/local/lib/systemd/system", useUnits},
	// systemd.unit(5), systemd.generator(7): control goes before all other folders.
	{"/etc/systemd/system.control", otherUnits}, {"/etc/systemd/system.attached", otherUnits}, {"/etc/systemd/*-generators", otherUnits}, {"/usr/local/lib/systemd", otherUnits},
	{"/etc/systemd/user", otherUnits}, {"/etc/xdg/systemd", otherUnits}, {"/usr/share/systemd", otherUnits}, {"/usr/local/share/systemd", otherUnits},
	{"/root/.config/systemd", otherUnits}, {"/root/.local/share/systemd", otherUnits}, {"/home/*/.config/systemd", otherUnits}, {"/home/*/.local/share/systemd", otherUnits},
	{"/etc/init.d", otherUnits}, {"/etc/rc.local", otherUnits}, {"/etc/rc?.d", otherUnits}, // of which generators make units
	{"/etc/extensions", ofImage}, {"/var/lib/extensions", ofImage}, {"/var/lib/confexts", ofImage}, {"/usr/local/lib/confexts", ofImage}, // systemd-sysext(8): laid over /usr and /etc
	{"/etc/sysctl.d/90-ortet.conf", "is written from spec.sysctls; use that"},
	{"/etc/kubernetes/kubelet.conf.d", useKubelet}, {"/var/lib/kubelet/config.yaml", "is the kubelet's own configuration; use spec.kubelet"},
	{"/etc/containerd/certs.d", useMirrors}, {"/etc/rancher/*/registries.yaml", useMirrors},
	{"/usr/local/share/ca-certificates/ortet-*", "is written from spec.caCertificates; use that"}, {"/etc/ssl/certs", "is written from spec.caCertificates; use that"},

	{"/etc/ortet", ownFile}, {"/var/lib/ortet", ownFile}, {"/etc/default/ortet-*", ownFile}, {"/etc/rancher/*/config.yaml.d/*ortet*", ownFile},
	{"/usr/local/bin/ortet*", ownFile}, {"/usr/local/lib/ortet", ownFile},

	{"/etc/kubernetes/*.conf", credentials}, {"/etc/kubernetes/*kubeconfig*", credentials}, {"/etc/kubernetes/pki", credentials}, {"/etc/kubernetes/certs", credentials},
	{"/etc/kubernetes/azure.json", credentials}, // the cloud provider's: subscription, network, identity
	{"/var/lib/kubelet/*kubeconfig*", credentials}, {"/var/lib/kubelet/pki", credentials},
	{"/root/.kube", credentials}, {"/home/*/.kube", credentials},
	{"/etc/rancher/*/*.yaml", credentials}, {"/etc/rancher/node", credentials},
	{"/var/lib/rancher/*/agent/etc/containerd", ""}, // allowed: templates of k3s's containerd configuration
	{"/var/lib/rancher", credentials},

	{"/etc/machine-id", identity}, {"/var/lib/dbus/machine-id", identity}, {"/etc/ssh/ssh_host_*", identity},
	{"/etc/hostname", identity},                                  // the Node's name: one for all nodes
	{"/var/lib/cloud", identity}, {"/var/lib/waagent", identity}, // which instance cloud-init and Azure's agent know
	{"/etc/passwd", accounts}, {"/etc/shadow", accounts}, {"/etc/group", accounts}, {"/etc/gshadow", accounts}, {"/etc/sudoers", accounts}, // not sudoers.d
	{"/etc/fstab", boots}, {"/etc/crypttab", boots}, {"/boot", boots}, {"/efi", boots},

	{"/usr/bin", ofImage}, {"/usr/sbin", ofImage}, {"/usr/lib", ofImage}, {"/usr/lib64", ofImage}, {"/usr/libexec", ofImage},
	{"/usr/local/bin/kubelet", runsNode}, {"/usr/local/bin/containerd*", runsNode}, {"/usr/local/bin/k3s*", runsNode}, {"/usr/local/bin/rke2*", runsNode}, {"/usr/local/sbin/runc", runsNode},
	{"/etc/kubernetes/manifests", "starts pods that the API server does not admit; use a DaemonSet"},

	{"/proc", ofKernel}, {"/sys", ofKernel}, {"/dev", ofKernel}, {"/run", ofKernel},
}

// sameFolders are links of a system with a merged /usr (systemd's file-hierarchy(7)), and
// of /var.
var sameFolders = [...][2]string{
	{"/bin", "/usr/bin"}, {"/sbin", "/usr/sbin"}, {"/lib", "/usr/lib"}, {"/lib64", "/usr/lib64"}, {"/var/run", "/run"}, {"/var/lock", "/run/lock"},
}

// RefusePath says why no file may lie at an absolute path; "" where one may. Links of the
// machine are not known here: the agent asks again with the path that they lead to.
func RefusePath(name string) (cause string) {
	name = path.Clean(name)
	for _, s := range sameFolders {
		if rest, ok := strings.CutPrefix(name, s[0]); ok && (rest == "" || rest[0] == '/') {
			name = s[1] + rest
		}
	}
	for _, r := range refusedPaths {
		for at := name; at != "/" && at != "."; at = path.Dir(at) {
			if ok, _ := path.Match(r.pattern, at); ok {
				return r.cause
			}
		}
	}
	return ""
}

const (
	byDrain      = "cannot be changed on a live node: it needs a drain and the removal of the kubelet's state file; set it in a new image"
	byContainers = "cannot be changed on a live node: running containers are in the cgroups of the present setting; set it in a new image"
	byAccess     = "could cut the node off from the cluster or open it to others; set it in the image"
	byRuntime    = "could cut the kubelet off from its containers; set it in the image"
	byHealth     = "is where Ortet reads the kubelet's health, 127.0.0.1:10248; delete the field"
	byStatic     = "starts pods that the API server does not admit; use a DaemonSet"
	byOrtet      = "is set by Ortet; delete the field"
)

// refusedKubelet are fields of KubeletConfiguration that a document cannot set, and why.
// Source of the first: kubernetes.io, "Changing the CPU Manager Policy".
var refusedKubelet = map[string]string{
	"cpuManagerPolicy": byDrain, "memoryManagerPolicy": byDrain, "topologyManagerPolicy": byDrain,
	"cgroupDriver": byContainers, "cgroupRoot": byContainers, "cgroupsPerQOS": byContainers,
	"containerRuntimeEndpoint": byRuntime, "imageServiceEndpoint": byRuntime,
	"authentication": byAccess, "authorization": byAccess, "rotateCertificates": byAccess, "serverTLSBootstrap": byAccess,
	"tlsCertFile": byAccess, "tlsPrivateKeyFile": byAccess, "address": byAccess, "port": byAccess, "readOnlyPort": byAccess,
	"enableServer": byAccess, "registerNode": byAccess, "providerID": byAccess, "runOnce": byAccess,
	"healthzPort": byHealth, "healthzBindAddress": byHealth,
	"staticPodPath": byStatic, "staticPodURL": byStatic, "staticPodURLHeader": byStatic,
	"apiVersion": byOrtet, "kind": byOrtet,
}

// RefuseKubelet says why no document may set a kubelet field; "" where one may.
func RefuseKubelet(field string) (cause string) { return refusedKubelet[field] }

// nodeUnits run the node's pods: without them it is no Node.
var nodeUnits = []string{"kubelet.service", "containerd.service", "k3s.service", "k3s-agent.service", "k3s-server.service", "rke2.service", "rke2-server.service", "rke2-agent.service"}

// RefuseUnitName says why no document may name a unit; "" where one may.
func RefuseUnitName(name string) (cause string) {
	if strings.HasPrefix(name, "ortet-") {
		return "is Ortet's own; a document cannot change it"
	}
	return ""
}

// A Refusal is a field of a unit that no document may have, and why.
type Refusal struct {
	Field string // "name", "dropIns[0].content"
	Cause string // begins with its subject
}

var (
	execStart = regexp.MustCompile(`(?m)^[ \t]*ExecStart[ \t]*=`)
	installed = regexp.MustCompile(`(?m)^[ \t]*(Alias|Also)[ \t]*=(.*)$`)
)

// RefuseUnit says what of a unit no document may have: nothing of Ortet's units, and of
// those that run the node's pods neither another program nor an end.
func RefuseUnit(u Unit) (all []Refusal) {
	if cause := RefuseUnitName(u.Name); cause != "" {
		return []Refusal{{"name", u.Name + " " + cause}}
	}
	for _, m := range installed.FindAllStringSubmatch(u.Content, -1) {
		for _, name := range strings.Fields(m[2]) {
			if RefuseUnitName(name) != "" || slices.Contains(nodeUnits, name) {
				all = append(all, Refusal{"content", m[1] + "= names " + name + ", which Ortet or the node's pods need; delete it"})
			}
		}
	}
	if !slices.Contains(nodeUnits, u.Name) {
		return all
	}
	if u.Content != "" {
		all = append(all, Refusal{"content", u.Name + " " + runsNode + ", or use dropIns"})
	}
	for i, d := range u.DropIns {
		field := fmt.Sprintf("dropIns[%d]", i)
		if d.Name == "20-ortet.conf" {
			all = append(all, Refusal{field + ".name", d.Name + " of " + u.Name + " " + ownFile})
		}
		if execStart.MatchString(d.Content) {
			all = append(all, Refusal{field + ".content", "ExecStart= of " + u.Name + " " + runsNode})
		}
	}
	for _, is := range [...]struct {
		field string
		value *bool
	}{{"enabled", u.Enabled}, {"started", u.Started}} {
		if is.value != nil && !*is.value {
			all = append(all, Refusal{is.field, "is false, but the Node needs " + u.Name + "; delete the field"})
		}
	}
	return all
}

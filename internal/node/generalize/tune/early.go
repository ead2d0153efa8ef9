package tune

import (
	"bytes"
	"cmp"
	_ "embed"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	kubelet   = "kubelet.service"
	unitsHere = "etc/systemd/system/" // what is here comes before the distribution's unit of the same name
	gateFile  = "etc/ortet/kubelet-early.sh"
)

// earlyUnits are the kubelet's and those of Ortet before it that wait for network-online.target.
func earlyUnits() []string {
	return []string{kubelet, "ortet-join.service", "ortet-left.service", "ortet-config-boot.service"}
}

// stages are the names that cloud-init's network stage has had, the newer one first.
func stages() []string { return []string{"cloud-init-network.service", "cloud-init.service"} }

//go:embed early.sh
var gate string

// earlyOrder replaces network-online.target, which comes after cloud-init's network stage.
const earlyOrder = `[Unit]
Wants=network-online.target
After=cloud-init-local.service network.target nss-lookup.target systemd-resolved.service
After=systemd-networkd-wait-online.service NetworkManager-wait-online.service networking.service

`

var (
	orderLine   = regexp.MustCompile(`(?m)^[ \t]*(?:After|Requires|BindsTo|Requisite|PartOf)[ \t]*=.*$`)
	beforeEarly = regexp.MustCompile(`(?m)^[ \t]*Before[ \t]*=.*\b(?:kubelet|ortet-join|ortet-left|ortet-config-boot)\.service\b.*$`)
	beforeInit  = regexp.MustCompile(`(?m)^[ \t]*Before[ \t]*=.*\bsysinit\.target\b.*$`)
	wantLine    = regexp.MustCompile(`(?m)^[ \t]*(?:Wants|Requires|BindsTo)[ \t]*=.*$`)
	installs    = regexp.MustCompile(`(?m)^[ \t]*\[Install\]`)
	initName    = regexp.MustCompile(`^sysinit\.target$`)
	noDefaults  = regexp.MustCompile(`(?m)^[ \t]*DefaultDependencies[ \t]*=[ \t]*(?:no|false|off|0)[ \t]*$`)
	lateNames   = regexp.MustCompile(`^network-online\.target$|^cloud-init(?:-network)?\.service$`)
	quickNames  = regexp.MustCompile(`^(?:sysinit|basic|network|network-pre|local-fs|nss-lookup)\.target$|` +
		`^(?:containerd|nftables|kubelet|ortet-[\w-]+|cloud-init-local|systemd-[\w-]+)\.service$`)
	restarts   = regexp.MustCompile(`(?m)^[ \t]*Restart[ \t]*=[ \t]*always[ \t]*$`)
	kubeletPre = regexp.MustCompile(`(?m)^[ \t]*Exec(?:Condition|StartPre)[ \t]*=[ \t]*` +
		`(?:(?:/usr)?/bin/test -e /run/ortet/joined[ \t]*$|\S*)`)
	knownPre   = regexp.MustCompile(`^ExecStartPre[ \t]*=[ \t]*(?:/usr)?/bin/test -e /run/ortet/joined$`)
	rootDir    = regexp.MustCompile(`--root-dir[= ][^\s"']+`)
	lateMounts = regexp.MustCompile(`(?m)^[ \t]*[^#\s].*?` +
		`\b(nofail|noauto|_netdev|x-systemd\.(?:requires|after|automount|wanted-by)|comment=cloudconfig)\b.*$`)
	cloudKeys = regexp.MustCompile(`(?m)^["']?(?:mounts|swap|disk_setup|fs_setup|bootcmd|write_files|ca[-_]certs|` +
		`hostname|manage_etc_hosts|manage_resolv_conf|fqdn)["']?[ \t]*:(?:[ \t]*["']?(?:true|false|yes|no|on|off)["']?[ \t]*$)?`)
	cloudOff  = regexp.MustCompile(`(?i):[ \t]*["']?(?:false|no|off)["']?$`)
	enforcing = regexp.MustCompile(`(?m)^SELINUX[ \t]*=[ \t]*enforcing`)
)

// isLate reports whether an assignment names a unit that may need cloud-init's network stage.
func isLate(line string) bool {
	return slices.ContainsFunc(names(line), func(n string) bool { return !quickNames.MatchString(n) })
}

// names returns the units that an assignment of a unit file names.
func names(line string) []string {
	_, value, _ := strings.Cut(line, "=")
	return strings.Fields(value)
}

// kubeletEarly is refused where the kubelet, or what is before it, may need more than cloud-init's
// local stage, as far as a disk shows it. The gate sees to the rest on each clone.
func (c *checker) kubeletEarly() string {
	unit := c.unit(kubelet)
	if unit == "" {
		return ""
	}
	if at, err := c.t.Resolve(unit, true); err == nil && path.Base(at) != kubelet {
		c.refuse(unit, 0, "is a link to /%s: a copy would be another unit than that", at)
	}
	c.quickUnits()
	c.quickKubelet(append([]string{unit}, c.dropIns(kubelet)...))
	c.quickCloud()
	return gate
}

// quickUnits looks at what is before the kubelet, and at units that cloud-init's network stage was
// before.
func (c *checker) quickUnits() {
	var before []string
	for _, line := range orderLine.FindAllString(string(c.read(c.find(kubelet))), -1) {
		before = append(before, names(line)...)
	}
	for _, name := range earlyUnits() {
		if c.enabled(name) {
			c.each(c.dropIns(name), orderLine, func(line string) string {
				if isLate(line) {
					return "somebody ordered it"
				}
				return ""
			})
		}
	}
	freed := c.stage() != "" // on Debian and Ubuntu
	for _, dir := range unitDirs() {
		for _, at := range c.glob("/"+dir+"/*", "/"+dir+"/*.d/*.conf") {
			name, text := path.Base(at), c.joined(at)
			if d := path.Base(path.Dir(at)); strings.HasSuffix(d, ".d") {
				name = strings.TrimSuffix(d, ".d")
			} else if freed && dir+"/" == unitsHere && path.Ext(name) == ".service" && !strings.HasPrefix(name, "snap.") &&
				len(text) > 0 && !c.says(at) && c.enabled(name) {
				c.refuse(at, 0, "came after cloud-init's network stage, and would not: "+
					"order it, After=network-online.target or After=cloud-init-local.service")
			}
			// What has no [Install] is started by another unit.
			if beforeEarly.Match(text) && (c.enabled(name) || !installs.Match(c.read(c.find(name)))) {
				before = append(before, name)
			}
		}
	}
	slices.Sort(before)
	for _, name := range slices.Compact(before) {
		at := c.find(name)
		if name == "network-online.target" || quickNames.MatchString(name) || at == "" && strings.HasSuffix(name, ".service") {
			continue
		}
		at = cmp.Or(at, "usr/lib/systemd/system/"+name)
		quick := c.says(at)
		for _, file := range append([]string{at}, c.dropIns(name)...) {
			quick = quick && !slices.ContainsFunc(orderLine.FindAllString(string(c.joined(file)), -1), isLate)
		}
		if !quick {
			c.refuse(at, 0, "is before the kubelet, and may need cloud-init's network stage; "+
				"if not, order it After=network.target cloud-init-local.service alone")
		}
	}
}

// joined is a unit's text with the lines put together that a backslash parts.
func (c *checker) joined(at string) []byte {
	return bytes.ReplaceAll(c.read(at), []byte("\\\n"), []byte(" "))
}

// says reports whether a unit's file orders it by the network, by a stage of cloud-init, or early.
func (c *checker) says(at string) bool {
	text := c.joined(at)
	return noDefaults.Match(text) || slices.ContainsFunc(orderLine.FindAllString(string(text), -1), func(line string) bool {
		return strings.Contains(line, "network-online.target") || strings.Contains(line, "cloud-")
	})
}

// stage returns where cloud-init's network stage is, if it is before sysinit.target and so before all
// units with default dependencies; otherwise "".
func (c *checker) stage() string {
	for _, name := range stages() {
		if at := c.find(name); at != "" && beforeInit.Match(c.read(at)) {
			return at
		}
	}
	return ""
}

// quickKubelet looks at the kubelet's unit with drop-ins, and at its flags.
func (c *checker) quickKubelet(units []string) {
	again := false
	c.each(units, restarts, func(string) string { again = true; return "" })
	if !again {
		c.refuse(units[0], 0, "has no Restart=always: a kubelet that came too early would not start again")
	}
	c.each(units, kubeletPre, unless(knownPre, "what it needs is not known"))
	flags := slices.Concat(units, c.glob("/etc/default/kubelet", "/etc/sysconfig/kubelet", "/var/lib/kubelet/kubeadm-flags.env"))
	c.each(flags, rootDir, always("the kubelet's folder may lie on a disk that is prepared at each boot"))
	if at, err := c.t.Resolve("var/lib/kubelet", true); err == nil && at != "var/lib/kubelet" {
		c.refuse("var/lib/kubelet", 0, "is reached by a link to /%s, which may be prepared at each boot", at)
	}
}

// quickCloud looks at what cloud-init's network stage does for a node, and at mounts.
func (c *checker) quickCloud() {
	if local := "cloud-init-local.service"; c.find(local) == "" {
		c.refuse("usr/lib/systemd/system/"+local, 0, "is not on this disk: something else names the machine")
	}
	if off := "etc/cloud/cloud-init.disabled"; c.exists(off) {
		c.refuse(off, 0, "cloud-init does not run: something else names the machine")
	}
	c.each(append([]string{"etc/cloud/cloud.cfg"}, c.glob("/etc/cloud/cloud.cfg.d/*.cfg")...), cloudKeys,
		unless(cloudOff, "cloud-init's network stage does it, and the kubelet would not wait for it"))
	c.each([]string{"etc/fstab"}, lateMounts, always("it may be mounted after the kubelet's start"))
	c.each([]string{"etc/selinux/config"}, enforcing, always("a unit that is added has no label, so that systemd may not read it"))
}

// earlyCopy makes a copy of a unit that does not wait for cloud-init's network stage; "" if there
// is nothing to copy. A drop-in cannot take an After= away (systemd.unit(5)).
func earlyCopy(name string) func(*checker) string {
	return func(c *checker) string {
		at := c.find(name)
		if at == "" || !c.enabled(name) {
			return ""
		}
		text := "# ortet capture --tune kubelet-early: a copy of /" + at + " that does not wait for cloud-init's network stage.\n" +
			earlyOrder + c.without(at, orderLine, lateNames)
		if name == kubelet {
			text += "\n[Unit]\nAfter=containerd.service\nRequiresMountsFor=/var/lib/kubelet /var/lib/containerd /var/log\n" +
				"\n[Service]\nTimeoutStartSec=infinity\nExecStartPre=/bin/sh /" + gateFile + "\n"
		}
		return text
	}
}

// stageCopy makes a copy of cloud-init's network stage that is not before sysinit.target, as the
// stage is on other distributions: D-Bus and the sockets that pods mount are there before a kubelet
// then, and units that the stage names itself, as sshd, still wait for it.
func stageCopy(name string) func(*checker) string {
	return func(c *checker) string {
		at := c.stage()
		if path.Base(at) != name {
			return ""
		}
		return "# ortet capture --tune kubelet-early: a copy of /" + at + " that is not before sysinit.target.\n" +
			c.without(at, beforeInit, initName)
	}
}

// without returns a unit's text without names in some of its lines.
func (c *checker) without(at string, lines, gone *regexp.Regexp) string {
	return lines.ReplaceAllStringFunc(string(c.read(at)), func(line string) string {
		key, _, _ := strings.Cut(line, "=")
		if left := slices.DeleteFunc(names(line), gone.MatchString); len(left) > 0 {
			return key + "=" + strings.Join(left, " ")
		}
		return "# " + line
	})
}

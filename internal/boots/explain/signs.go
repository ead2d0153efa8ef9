package explain

import (
	"regexp"
	"slices"
	"strings"
)

// Signs of a failure for which the judge may know no cause, by what would get over it.
var (
	deadBoot   = regexp.MustCompile(`(?i)kernel panic - not syncing|you are in emergency mode|entering emergency mode|dracut-initqueue.*: timeout|warning: could not boot|^\s*dracut:/#|grub rescue>|^\(initramfs\)|^\s*dropping to a shell|no bootable device|UEFI Interactive Shell v`)
	unitFails  = regexp.MustCompile(`(?i)failed to start (.*)|(?:^|[\s:])([\w@-]+)\.service: failed with result|dependency failed for (.*)`)
	unitStarts = regexp.MustCompile(`(?i)(?:^|[\s\]])(?:started|finished) (.*)`)
	fatal      = regexp.MustCompile(`(?:^|(?:kubelet|hyperkube)\S*: )F\d{4} \d\d:\d\d:|(?:kubelet|k3s|rke2|containerd)\S*: panic: |"command failed" err=|level=fatal|Unable to register node with API server`)
	moduleFail = regexp.MustCompile(`(?i)failed to run module |failed running /var/lib/cloud/|running module \S+ .*failed|user_data script ended with return code: [1-9]`)
	kubeadm    = regexp.MustCompile(`error execution phase `)
	isReady    = regexp.MustCompile(`as it just became ready|NodeReady\b|status is now: NodeReady`)
	notReady   = regexp.MustCompile(`NodeNotReady\b|status is now: NodeNotReady`)
	registered = regexp.MustCompile(`(?i)successfully registered node|k3s is up and running|containerd successfully booted`)
	ended      = regexp.MustCompile(`Cloud-init v\. \S+ finished at |: Startup finished in |Reached target (?:multi-user\.target|Multi-User System|graphical\.target|Graphical Interface)|^\S+ login: *$`)
)

// component is what a unit's name or description is of, among what makes a node; "" for
// others.
func component(s string) string {
	s = strings.ToLower(s)
	for _, c := range [...]struct{ word, is string }{
		{"kubelet", "kubelet"}, {"containerd", "runtime"}, {"cri-o", "runtime"}, {"container runtime interface for oci", "runtime"}, {"k3s", "k3s"}, {"rke2", "k3s"},
		{"lightweight kubernetes", "k3s"}, {"rancher kubernetes engine", "k3s"}, {"cloud-init", "cloud-init"}, {"cloud-config", "cloud-init"}, {"cloud-final", "cloud-init"}, {"cloud user", "cloud-init"},
	} {
		if strings.Contains(s, c.word) {
			return c.is
		}
	}
	return ""
}

// readSigns says which lines show that something failed and was not got over, and which
// show that the boot came to its end. It reads only what a node needs.
func (p *part) readSigns() {
	open := map[string][]int{}
	closes := func(keys ...string) {
		for _, k := range keys {
			delete(open, k)
		}
	}
	note := func(key string, i int) { open[key] = append(open[key], i) }
	for i, l := range p.lines {
		s := l.Text
		switch {
		case deadBoot.MatchString(s):
			note("boot", i)
		case moduleFail.MatchString(s):
			note("module", i)
		case kubeadm.MatchString(s):
			note("kubeadm", i)
		case notReady.MatchString(s):
			note("node", i)
		case fatal.MatchString(s):
			note("fatal", i)
		case isReady.MatchString(s):
			closes("node", "fatal", "kubelet", "k3s", "runtime", "kubeadm")
			p.good(i)
		case registered.MatchString(s):
			closes("fatal", "kubelet", "k3s")
		case ended.MatchString(s):
			p.good(i)
		default:
			if m := unitFails.FindStringSubmatch(s); m != nil {
				if c := component(m[1] + m[2] + m[3]); c != "" {
					note(c, i)
				}
			} else if m := unitStarts.FindStringSubmatch(s); m != nil {
				if c := component(m[1]); c != "" && len(open[c]) < 3 { // one that loops starts every time
					closes(c)
				}
			}
		}
	}
	for key, lines := range open {
		p.failed = true
		if key == "boot" { // what comes after follows from it
			lines = lines[:1]
		}
		p.signs = append(p.signs, lines[len(lines)-1])
	}
	p.dead = len(open["boot"]) > 0
	slices.Sort(p.signs)
	p.signs = slices.Compact(p.signs)
}

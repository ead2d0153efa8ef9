package explain

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Signs of a failure for which the judge may know no cause, by what would get over it.
var (
	deadBoot = words("kernel panic - not syncing", "kernel panic-not syncing", "you are in emergency mode", "entering emergency mode", "welcome to emergency mode", "dracut-initqueue: timeout", "warning: could not boot", "dracut:/#",
		"grub rescue>", "(initramfs) ", "dropping to a shell", "dropped into an emergency shell", "no bootable device", "uefi interactive shell v")
	fatal      = words("level=fatal", `"level":"fatal"`, "fata[", "[fatal] ", "unable to register node with api server", "failure when processing extension", "[extensionerror]")
	ended      = words(`"command failed" err=`, `] "command f`, "failed to run kubelet: ", "failed to create kubelet: ")
	k3d        = words("failed to create cluster >>> rolling back", "failed cluster start: ", "encountered fatal log from node k3d-")
	kubeadm    = words("error execution phase ", "couldn't initialize a kubernetes cluster", "this error is likely caused by:", "kubeadm init timed out", "failed to init node with kubeadm", "failed to join node with kubeadm")
	ofK3s      = words("k3s", "rke2", "k3d")
	moduleFail = words("failed to run module ", "failed running /var/lib/cloud/", "user_data script ended with return code: ")
	ofWindows  = words(" cloudbaseinit.", "npipe:", `c:\k\`, `\\.\pipe\`)
	isReady    = words("as it just became ready", "status is now: nodeready", " nodeready ")
	notReady   = words("status is now: nodenotready", " nodenotready ")
	registered = words("successfully registered node", "k3s is up and running", "containerd successfully booted")
	finished   = words(" finished at ", " cloudbaseinit.init [-] plugins execution done")

	klogError  = regexp.MustCompile(`(?:^|: )[ef]\d{4} \d\d:\d\d:|level=(?:error|fatal)|(?:erro|fata)\[\d`)
	klogFatal  = regexp.MustCompile(`(?:^|(?:kubelet|hyperkube)\S*: )f\d{4} \d\d:\d\d:|(?:kubelet|k3s|rke2|containerd)\S*: panic: `)
	unitFails  = regexp.MustCompile(`failed to start (.*)|(?:^|[\s:])([\w@-]+)\.service: (?:failed with result|unit entered failed state)|dependency failed for (.*)|unit ([\w@-]+)\.service entered failed state|^\W*([\w@-]+)\.service: main process exited, code=\w+, status=[1-9]`)
	tasks      = regexp.MustCompile(`(?:unable to (?:re)?start service |job for )([\w@.-]+)`)
	unitStops  = regexp.MustCompile(`(?:^|[\s\]])stopping (.*)`)
	unitStarts = regexp.MustCompile(`(?:^|[\s\]])(?:started|finished) (.*)`)
)

// words gives what says whether one of some words is in a text in lower case.
func words(all ...string) func(string) bool {
	return func(s string) bool {
		return slices.ContainsFunc(all, func(w string) bool { return strings.Contains(s, w) })
	}
}

// lastWords are reasons that say only what ended, by the signs of it: the nearest to the cause
// first.
var lastWords = [...]struct{ sign, reason string }{
	{"kubeadm", "KubeadmFailed"}, {"module", "CloudInitModuleFailed"}, {"k3s ended", "K3sAgentFailed"}, {"k3s", "K3sAgentFailed"},
	{"kubelet ended", "KubeletCrashLoop"}, {"kubelet", "KubeletCrashLoop"}, {"aks", "AKSProvisioningFailed"}, {"runtime", "UnitFailed"}, {"cloud-init", "UnitFailed"},
	{"mount", "MountFailed"}, {"node", "NodeNotReady"}, {"initrd", "UnitHung"},
}

// lastWord is the first of lastWords that the parts of a machine have; "" for none.
func lastWord(parts []*part) string {
	for _, w := range lastWords {
		if slices.ContainsFunc(parts, func(p *part) bool { return p.open[w.sign] != nil }) {
			return w.reason
		}
	}
	return ""
}

// endedOf is the sign of which program's last word a line in lower case is; "" where it is
// not known.
func endedOf(s string) string {
	switch {
	case ofK3s(s):
		return "k3s ended"
	case strings.Contains(s, "kubelet"), strings.Contains(s, "hyperkube"), ended(s):
		return "kubelet ended"
	case strings.Contains(s, "containerd"), strings.Contains(s, "crio["):
		return "runtime"
	}
	return ""
}

// maxSign bounds, in bytes, how much of a line is read for signs.
const maxSign = 4 << 10

// component is what a unit's name or description is of, in lower case, among what makes
// a node; "" for others.
func component(s string) string {
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
	open, stopping := map[string][]int{}, map[string]bool{}
	maps.Copy(open, p.open)
	works := -1 // where the kubelet last said that it registered the node, and met no error later
	closes := func(keys ...string) {
		for _, k := range keys {
			delete(open, k)
		}
	}
	note := func(key string, i int) { open[key] = append(open[key], i) }
	lines, i := p.lines, -1
	if whole, wraps := unwrapped(lines); wraps {
		lines = whole
	}
	for _, l := range lines {
		for i++; p.lines[i].Number != l.Number; i++ { // the line of the part that it begins with
		}
		s := strings.TrimLeft(strings.ToLower(l.Text[:min(len(l.Text), maxSign)]), " ")
		p.windows = p.windows || ofWindows(s)
		if works >= 0 && klogError.MatchString(s) {
			works = -1
		} else if strings.Contains(s, "successfully registered node") {
			works = i
		}
		switch {
		case deadBoot(s):
			note("boot", i)
			if strings.Contains(s, "dracut-initqueue") {
				note("initrd", i)
			}
		case moduleFail(s) && !strings.Contains(s, "code: 0"), strings.Contains(s, "running module ") && strings.Contains(s, "failed"):
			note("module", i)
		case kubeadm(s):
			note("kubeadm", i)
		case strings.Contains(s, "this node has joined the cluster"):
			closes("kubeadm", "kubelet", "kubelet ended", "job")
			p.good(i)
		case p.newest != "" && (notReady(s) || isReady(s)): // Events, which count by their times
		case notReady(s):
			note("node", i)
		case isReady(s):
			closes("node", "fatal", "kubelet", "kubelet ended", "k3s", "k3s ended", "runtime", "kubeadm", "job")
			p.good(i)
		case registered(s) && !strings.Contains(s, "waiting for log"): // k3d's
			closes("fatal", "kubelet", "kubelet ended", "k3s", "k3s ended")
		case ended(s), klogFatal.MatchString(s):
			note(cmp.Or(endedOf(s), "fatal"), i)
		case strings.Contains(s, "reached target multi-user"):
			closes("mount")
		case k3d(s):
			note("k3s ended", i)
		case strings.Contains(s, "]: failed! => {"): // Ansible's, of any task
			unit := ""
			if m := tasks.FindStringSubmatch(s); m != nil {
				unit = component(m[1])
			}
			note(cmp.Or(unit, "fatal"), i)
		case fatal(s):
			note(cmp.Or(endedOf(s), "fatal"), i)
		case finished(s):
			if !strings.Contains(s, " finished at ") || strings.Contains(s, "cloud-init v. ") {
				p.good(i)
				if open["module"] == nil {
					closes("job") // a script that tried again
				}
			}
		case strings.Contains(s, "failed to mount /"), strings.Contains(s, ".mount - ") && strings.Contains(s, "failed to mount "):
			note("mount", i)
		case strings.Contains(s, "fail"):
			if _, job, ok := strings.Cut(s, "job for "); ok && strings.Contains(job, " failed because ") {
				unit, _, _ := strings.Cut(job, " ")
				note(cmp.Or(component(unit), "job"), i)
			} else if m := unitFails.FindStringSubmatch(s); m != nil {
				if c := component(strings.Join(m[1:], "")); c != "" && !stopping[c] {
					note(c, i)
				}
			}
		case strings.Contains(s, "stopping "):
			if m := unitStops.FindStringSubmatch(s); m != nil { // what it ends with is of no account
				stopping[component(m[1])] = true
			}
		case strings.Contains(s, "started ") || strings.Contains(s, "finished "):
			if m := unitStarts.FindStringSubmatch(s); m != nil {
				c := component(m[1])
				if stopping[c] = false; c != "" && len(open[c]) < 3 { // one that loops starts every time
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
	if works >= 0 {
		p.good(works)
	}
	p.dead, p.open = len(open["boot"]) > 0, open
	slices.Sort(p.signs)
	p.signs = slices.Compact(p.signs)
}

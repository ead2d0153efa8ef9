package generalize

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/generalize/tune"
	"github.com/ortet/ortet/internal/node/tree"
)

// RefusedError says that the disk cannot be generalised, and that nothing on it was
// changed.
type RefusedError struct{ Reason string }

func (r *RefusedError) Error() string { return r.Reason }

func refuse(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// inspection is what a look at the disk found before anything changed.
type inspection struct {
	os      string // PRETTY_NAME
	donor   facts
	joins   []string
	kubeadm bool
	resumed bool // an earlier run of this capture began on this disk
	tune    *tune.Plan
}

// configurationJournal is there while ortet-node config applies a configuration: the
// disk has neither the old nor the new one.
const configurationJournal = "/var/lib/ortet/config/journal.json"

// CheckDonor says, as a *RefusedError, why the tree is not the donor's system disk;
// nil when it is. It changes nothing.
func CheckDonor(t *tree.Tree, o Options) error {
	if ok, err := IsSystem(t); err != nil {
		return err
	} else if !ok {
		return refuse("there is no operating system on %s: neither os-release nor /etc with /var; is it the disk of another kind?", t.Dir())
	}
	lines, err := readAncestry(t)
	if err != nil {
		return err
	}
	if begun(lines, o) {
		return nil
	}
	var seen []string
	for _, file := range []string{"/etc/hostname", "/var/lib/cloud/data/previous-hostname", "/var/lib/waagent/published_hostname"} {
		data, err := readOptional(t, file, 4096)
		if err != nil {
			return err
		}
		host := hostName(data)
		if host == "" || host == "localhost" {
			continue
		}
		if host == o.Donor || strings.HasPrefix(host, o.Donor+".") || strings.HasPrefix(o.Donor, host+".") {
			return nil
		}
		seen = append(seen, fmt.Sprintf("%s says %q", file, host))
		break // the first that says anything counts
	}
	if len(seen) == 0 {
		return refuse("the disk does not say whose it is (no /etc/hostname, nor a line of capture %s in /%s): cannot be sure that it is %s's", o.Capture, ancestryFile, o.Donor)
	}
	return refuse("the disk is not %s's: %s", o.Donor, strings.Join(seen, ", "))
}

// IsSystem says whether a tree is the root of an operating system.
func IsSystem(t *tree.Tree) (bool, error) {
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if ok, err := t.Exists(file); err != nil || ok {
			return ok, err
		}
	}
	// Distributions with /usr on another disk: the root holds the state only.
	for _, dir := range []string{"/etc/systemd", "/var/lib"} {
		info, err := t.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) || (err == nil && !info.IsDir()) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// inspect looks at everything that can make the disk refused, and names all of
// it in one *RefusedError.
func inspect(t *tree.Tree, o Options) (inspection, error) {
	var found inspection
	if err := CheckDonor(t, o); err != nil {
		return found, err
	}
	var problems []string
	preserve, err := preservesHostname(t)
	if err != nil {
		return found, err
	}
	if preserve != "" {
		problems = append(problems, fmt.Sprintf("%s sets preserve_hostname: true, so every clone would keep the donor's name; set it to false on the donor", preserve))
	}
	plane, err := controlPlane(t)
	if err != nil {
		return found, err
	}
	if plane != "" {
		problems = append(problems, fmt.Sprintf("this is the disk of a control plane (%s): only workers can be captured", plane))
	}
	if o.Flush || !o.Online.IsZero() {
		why, err := packagesAtWork(t, o.Flush)
		if err != nil {
			return found, err
		}
		if why != "" {
			problems = append(problems, why+": a copy of the running node's disk would have half a package; wait until it is done, mend it (dpkg --configure -a), or capture without --online")
		}
	}
	undriven, err := kernelWithoutDriver(t)
	if err != nil {
		return found, err
	}
	if undriven != "" {
		problems = append(problems, undriven)
	}
	open, err := t.Exists(configurationJournal)
	if err != nil {
		return found, err
	}
	if open {
		problems = append(problems, fmt.Sprintf("a configuration is half applied (%s): start the donor, wait until 'ortet-node config show' says Applied or Failed, and capture it then", configurationJournal))
	}
	if found.joins, err = findJoins(t); err != nil {
		return found, err
	}
	if o.Bootstrap == Baked && len(found.joins) == 0 {
		problems = append(problems, "with --bootstrap baked clones could not join: there is no bootstrap kubeconfig, shared certificate, k3s token or unit that asks for admission on the disk; use --bootstrap keep, or prepare the donor")
	}
	plan, against, err := tune.Check(t, o.Tune, o.Bootstrap == Keep)
	if err != nil {
		return found, err
	}
	found.tune, problems = plan, append(problems, against...)
	if len(problems) > 0 {
		return found, refuse("%s", strings.Join(problems, "; "))
	}
	if found.donor, err = learn(t, o); err != nil {
		return found, err
	}
	if found.kubeadm, err = t.Exists("/var/lib/kubelet/kubeadm-flags.env"); err != nil {
		return found, err
	}
	lines, err := readAncestry(t)
	if err != nil {
		return found, err
	}
	found.resumed = begun(lines, o)
	found.os, err = prettyName(t)
	return found, err
}

var preserveLine = regexp.MustCompile(`(?im)^\s*["']?preserve_hostname["']?\s*:\s*["']?(\w+)`)

// preservesHostname returns the cloud-init file whose word on
// preserve_hostname is the last and is true, or "". Files of cloud.cfg.d win
// over cloud.cfg, later names over earlier ones.
func preservesHostname(t *tree.Tree) (string, error) {
	var winner string
	var says bool
	more, err := t.Glob("/etc/cloud/cloud.cfg.d/*.cfg")
	if err != nil {
		return "", err
	}
	slices.Sort(more)
	for _, file := range append([]string{"etc/cloud/cloud.cfg"}, more...) {
		data, err := readOptional(t, file, maxConfig)
		if err != nil {
			return "", err
		}
		for _, m := range preserveLine.FindAllSubmatch(data, -1) {
			v := strings.ToLower(string(m[1]))
			winner, says = "/"+file, v == "true" || v == "yes" || v == "on" || v == "1"
		}
	}
	if !says {
		return "", nil
	}
	return winner, nil
}

func controlPlane(t *tree.Tree) (string, error) {
	for _, file := range []string{
		"/etc/kubernetes/manifests/kube-apiserver.yaml", "/var/lib/etcd/member",
		// A server whose datastore is elsewhere has no db.
		"/var/lib/rancher/k3s/server/db", "/var/lib/rancher/rke2/server/db", "/var/lib/rancher/k3s/server/tls", "/var/lib/rancher/rke2/server/tls",
	} {
		if ok, err := t.Exists(file); err != nil {
			return "", err
		} else if ok {
			return file, nil
		}
	}
	return "", nil
}

func prettyName(t *tree.Tree) (string, error) {
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		data, err := readOptional(t, file, 64<<10)
		if err != nil {
			return "", err
		}
		s := bufio.NewScanner(bytes.NewReader(data))
		for s.Scan() {
			if v, ok := strings.CutPrefix(s.Text(), "PRETTY_NAME="); ok {
				return printable(strings.Trim(v, `"'`), 128), nil
			}
		}
	}
	return "", nil
}

// hooks lists cloud-init's clean.d hooks. They are programs of the disk, and
// this runs with the host's devices at hand: they are named, never run.
func hooks(t *tree.Tree) ([]string, error) {
	paths, err := t.Glob("/etc/cloud/clean.d/*")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, at := range paths {
		info, err := t.Stat(at)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			continue
		}
		found = append(found, path.Join("/", at))
	}
	return found, nil
}

// printable cuts a text to n bytes and replaces what a terminal would act on.
func printable(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return s
}

package tune

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
)

// A checker finds what stands against tunings of a disk.
type checker struct {
	t        *tree.Tree
	keeps    bool
	plan     *Plan
	name     string // of the tuning that is checked
	problems []string
	err      error // the first
}

func (c *checker) refuse(at string, line int, format string, args ...any) {
	where := "/" + at
	if line > 0 {
		where = fmt.Sprintf("%s:%d", where, line)
	}
	c.problems = append(c.problems, fmt.Sprintf("--tune %s: %s: %s", c.name, where, fmt.Sprintf(format, args...)))
}

func (c *checker) fail(err error) {
	if c.err == nil && !errors.Is(err, fs.ErrNotExist) {
		c.err = err
	}
}

func (c *checker) exists(at string) bool {
	_, err := c.t.Lstat(at)
	c.fail(err)
	return err == nil
}

// glob lists files, but for what is taken away.
func (c *checker) glob(patterns ...string) (files []string) {
	for _, p := range patterns {
		found, err := c.t.Glob(p)
		c.fail(err)
		slices.Sort(found)
		// /lib may be a link to /usr/lib.
		found = slices.DeleteFunc(found, func(at string) bool { return c.plan.isOurs(at) || slices.Contains(files, at) })
		files = append(files, found...)
	}
	return files
}

func (c *checker) read(at string) []byte {
	text, err := c.t.ReadFile(at, maxConfig)
	if !errors.Is(err, tree.ErrNotRegular) {
		c.fail(err)
	}
	return text
}

// each calls found with every match of a pattern: what it returns, if anything, is a reason to refuse.
func (c *checker) each(files []string, form *regexp.Regexp, found func(text string) (why string)) {
	for _, at := range files {
		text := c.read(at)
		for _, m := range form.FindAllSubmatchIndex(text, -1) {
			if len(m) > 2 { // what may be shown
				m = m[2:4]
			}
			match := string(bytes.TrimSpace(text[m[0]:m[1]]))
			if why := found(match); why != "" {
				first := m[1] - len(bytes.TrimLeft(text[m[0]:m[1]], " \t\r\n"))
				c.refuse(at, 1+bytes.Count(text[:first], []byte("\n")), "%s: %s", match, why)
			}
		}
	}
}

func always(why string) func(string) string { return func(string) string { return why } }

func unless(fine *regexp.Regexp, why string) func(string) string {
	return func(text string) string {
		if fine.MatchString(text) {
			return ""
		}
		return why
	}
}

// userData are the files in which cloud-init keeps what the model and the platform gave the donor.
func (c *checker) userData() []string {
	const dir = "/var/lib/cloud/instance/"
	if !c.keeps {
		return nil
	}
	return c.glob(dir+"cloud-config.txt", dir+"user-data.txt", dir+"vendor-cloud-config.txt", dir+"vendor-data.txt", dir+"scripts/*")
}

var (
	initModules    = regexp.MustCompile(`(?m)^["']?cloud_init_modules["']?[ \t]*:.*(?:\n(?:[ \t#-].*)?)*`)
	moduleSSH      = regexp.MustCompile(`(?m)(?:^|[\[,-])[ \t]*["']?(?:cc_)?ssh["']?[ \t\r]*(?:[,\]#]|$)`)
	keyOptions     = regexp.MustCompile(`(?m)^[ \t]*["']?(?:ssh_genkeytypes|ssh_keys)["']?[ \t]*:`)
	hostKeys       = regexp.MustCompile(`(?im)^[ \t]*HostKey[ \t]+\S+`)
	hostAlgorithms = regexp.MustCompile(`(?im)^[ \t]*(?:HostKeyAlgorithms|HostCertificate)[ \t=]+.*$`)
	fips           = regexp.MustCompile(`(?m)\bfips=1\b|^FIPS\b.*$`)
)

// sshHostKey is refused where another than cloud-init makes the keys, where somebody chose their
// types, and where Ed25519 cannot be used.
func (c *checker) sshHostKey() string {
	config := append([]string{"etc/cloud/cloud.cfg"}, c.glob("/etc/cloud/cloud.cfg.d/*.cfg")...)
	runs, at := false, config[0]
	for _, file := range config { // a later file replaces the list of an earlier one
		if m := initModules.FindAll(c.read(file), -1); len(m) > 0 {
			runs, at = moduleSSH.Match(m[len(m)-1]), file
		}
	}
	if !runs {
		c.refuse(at, 0, "cloud-init's module ssh does not run: something else makes the host keys")
	}
	if off := "etc/cloud/cloud-init.disabled"; c.exists(off) {
		c.refuse(off, 0, "cloud-init does not run: something else makes the host keys")
	}
	c.each(slices.Concat(config, c.userData()), keyOptions, always("the host keys are chosen there already"))

	daemon := c.glob("/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/*.conf")
	ed25519 := false
	c.each(daemon, hostKeys, func(text string) string {
		ed25519 = ed25519 || strings.Contains(strings.ToLower(text), "ed25519")
		return ""
	})
	if !ed25519 {
		c.each(daemon, hostKeys, always("sshd would have no host key"))
	}
	c.each(daemon, hostAlgorithms, func(text string) string {
		_, value, _ := strings.Cut(strings.ReplaceAll(text, "=", " "), " ")
		value = strings.ToLower(strings.TrimSpace(value))
		named := strings.Contains(value, "ed25519")
		if strings.HasPrefix(value, "+") || strings.HasPrefix(value, "^") || named != strings.HasPrefix(value, "-") {
			return ""
		}
		return "it leaves Ed25519 out"
	})
	c.each(c.glob("/etc/default/grub", "/etc/default/grub.d/*.cfg", "/boot/grub*/grub.cfg", "/boot/loader/entries/*.conf",
		"/etc/crypto-policies/config", "/etc/kernel/cmdline"), fips, always("FIPS mode knows no Ed25519"))
	if at := "etc/system-fips"; c.exists(at) {
		c.refuse(at, 0, "FIPS mode knows no Ed25519")
	}
	return "# ortet capture --tune ssh-host-key\nssh_genkeytypes: [ed25519]\n"
}

var (
	unitOrder = regexp.MustCompile(`(?m)^[ \t]*(?:After|Wants|Requires|BindsTo|Requisite|PartOf)[ \t]*=` +
		`.*\b(?:cloud-[\w-]+|network-online|remote-fs|walinuxagent|waagent)\b.*$`)
	unitBefore     = regexp.MustCompile(`(?m)^[ \t]*Exec(?:Condition|StartPre)[ \t]*=[ \t]*\S+`)
	onlyModprobe   = regexp.MustCompile(`^ExecStartPre[ \t]*=[ \t]*[-+!@:]*(?:/usr)?/s?bin/modprobe$`)
	stores         = regexp.MustCompile(`(?m)^[ \t]*(?:root|state)[ \t]*=[ \t]*["'][^"']*["']`)
	usualStores    = regexp.MustCompile(`["'](?:/var/lib|/run)/containerd/?["']`)
	snapshotters   = regexp.MustCompile(`(?m)^[ \t]*(?:snapshotter|imports)[ \t]*=.*$`)
	usualSnapshots = regexp.MustCompile(`^snapshotter[ \t]*=[ \t]*["'](?:overlayfs|native)?["']|^imports[ \t]*=[ \t]*\[[ \t]*\]`)
	instance       = regexp.MustCompile(`@[^.]+\.`)
	namesRuntime   = regexp.MustCompile(`(?m)\bcontainerd\b|^[ \t]*["']?package(?:s|_update|_upgrade)["']?[ \t]*:`)
)

func unitDirs() []string {
	return []string{"etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"}
}

// find returns where a unit's file is, or that of its template; "" if there is none. What is taken
// away does not count.
func (c *checker) find(name string) string {
	for _, dir := range unitDirs() {
		if at := path.Join(dir, name); !c.plan.isOurs(at) && c.exists(at) {
			return at
		}
	}
	if template := instance.ReplaceAllString(name, "@."); template != name {
		return c.find(template)
	}
	return ""
}

// unit is find, and refuses where there is no file to read.
func (c *checker) unit(name string) string {
	at := c.find(name)
	if at == "" {
		c.refuse("usr/lib/systemd/system/"+name, 0, "is not on this disk: the program is another, or /usr is on another partition")
		return ""
	}
	if info, err := c.t.Stat(at); err != nil || !info.Mode().IsRegular() {
		c.refuse(at, 0, "is masked, or a link that leads nowhere")
		return ""
	}
	return at
}

func (c *checker) dropIns(name string) []string {
	var patterns []string
	for _, dir := range append(unitDirs(), "run/systemd/system") {
		patterns = append(patterns, "/"+dir+"/"+name+".d/*.conf")
	}
	return c.glob(patterns...)
}

// enabled reports whether a unit is started: by a link, or by the kubelet's.
func (c *checker) enabled(name string) bool {
	if name == kubelet {
		return true
	}
	for _, at := range append(c.dropIns(kubelet), c.find(kubelet)) {
		for _, line := range wantLine.FindAllString(string(c.read(at)), -1) {
			if slices.Contains(names(line), name) {
				return true
			}
		}
	}
	name = strings.Replace(name, "@.", "@*.", 1) // any instance of a template
	for _, dir := range unitDirs() {
		if len(c.glob("/"+dir+"/*.wants/"+name, "/"+dir+"/*.requires/"+name)) > 0 {
			return true
		}
	}
	return false
}

// runtimeEarly is refused where containerd needs more than mounted file systems.
func (c *checker) runtimeEarly() string {
	const service = "containerd.service"
	unit := c.unit(service)
	if unit == "" {
		return ""
	}
	c.each(c.userData(), namesRuntime, always("clones run it again with --bootstrap keep, and it may change what containerd reads"))
	units := append([]string{unit}, c.dropIns(service)...)
	c.each(units, unitOrder, always("somebody ordered it"))
	c.each(units, unitBefore, unless(onlyModprobe, "what it needs is not known"))
	config := []string{"etc/containerd/config.toml"}
	c.each(config, stores, unless(usualStores, "the store may lie on a disk that is prepared at each boot"))
	c.each(config, snapshotters, unless(usualSnapshots, "what it needs may not be there yet"))
	if at, err := c.t.Resolve("var/lib/containerd", true); err == nil && at != "var/lib/containerd" {
		c.refuse("var/lib/containerd", 0, "is reached by a link to /%s, which may be prepared at each boot", at)
	}
	return `# ortet capture --tune runtime-early
[Unit]
DefaultDependencies=no
After=systemd-tmpfiles-setup.service systemd-sysctl.service systemd-modules-load.service apparmor.service
RequiresMountsFor=/var/lib/containerd
Conflicts=shutdown.target
Before=shutdown.target
`
}

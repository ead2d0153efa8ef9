package generalize

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// needed are what a node boots, logs in, connects and joins by. A folder ends in "/".
func needed() []string {
	return []string{
		"boot/", "efi/", "lib/systemd/", "usr/lib/systemd/", "etc/cloud/", "etc/cni/", "etc/containerd/", "etc/containers/", "etc/crio/", "etc/crypttab", "etc/cryptsetup-keys.d/", "etc/default/", "etc/docker/",
		"etc/environment", "etc/fstab", "etc/group", "etc/gshadow", "etc/kubernetes/", "etc/netplan/", "etc/network/", "etc/NetworkManager/",
		"etc/pam.d/", "etc/passwd", "etc/rancher/", "etc/security/", "etc/shadow", "etc/ssh/", "etc/sudoers", "etc/sudoers.d/", "etc/sysconfig/",
		"etc/sysctl.conf", "etc/sysctl.d/", "etc/systemd/", "etc/udev/", "etc/waagent.conf", "etc/wireguard/", "var/lib/kubelet/", "var/lib/rancher/",
	}
}

// keeps says why a file may not be removed, whatever it holds; "" where nothing is known.
func (s *scanner) keeps(at string, joins []string) string {
	for store := range s.stores {
		if strings.HasPrefix(at, store+"/") {
			return "it is part of an image; remove the image from the node"
		}
	}
	if isVendor(at) {
		return "only packages write there"
	}
	for _, p := range needed() {
		if at == p || strings.HasSuffix(p, "/") && strings.HasPrefix(at, p) {
			return "the node may need it to boot; mend it on the node"
		}
	}
	if slices.Contains(joins, "/"+at) {
		return "clones join by it"
	}
	return ""
}

// planRemovals chooses the files that go for the other secrets in them, and says at the
// others why they stay.
func (s *scanner) planRemovals(t *tree.Tree, joins []string) error {
	why := map[string]string{} // path → why it stays
	for k, f := range s.findings {
		if f.Class == wire.OtherSecret && !f.Accepted {
			why[k.path] = s.keeps(k.path, joins)
		}
	}
	for k, f := range s.findings {
		if _, ok := why[k.path]; ok && f.Class != wire.OtherSecret {
			why[k.path] = "it also holds a secret of class " + string(f.Class)
		}
	}
	for at := range why {
		info, err := t.Lstat(at)
		if err != nil {
			return err
		}
		if linked(info) {
			why[at] = "it has other hard links"
		}
	}
	if err := shippedFiles(t, why); err != nil {
		return err
	}
	for k, f := range s.findings {
		reason, ok := why[k.path]
		if !ok || f.Class != wire.OtherSecret {
			continue
		}
		if reason == "" {
			f.Removed = true
		} else {
			f.Detail = printable(strings.TrimPrefix(f.Detail+"; not removed: "+reason, "; "), 256)
		}
		s.findings[k] = f
	}
	for at, reason := range why {
		if reason == "" {
			s.removals = append(s.removals, at)
		}
	}
	slices.Sort(s.removals)
	return nil
}

// shippedFiles says in why which of its files packages ship. Debian's lists name each
// file; of RPM's database, which is not parsed, any file of the same base name counts.
func shippedFiles(t *tree.Tree, why map[string]string) error {
	const shipped = "a package ships it; mend it on the node"
	bases := map[string][]string{}
	for at, reason := range why {
		if reason == "" {
			bases[path.Base(at)] = append(bases[path.Base(at)], at)
		}
	}
	if len(bases) == 0 {
		return nil
	}
	err := eachRecord(t, []string{"/var/lib/dpkg/info/*.list"}, '\n', func(line []byte) {
		at := strings.TrimPrefix(string(line), "/")
		if reason, ok := why[at]; ok && reason == "" {
			why[at] = shipped
		}
	})
	if err != nil {
		return err
	}
	databases := []string{"/var/lib/rpm/Packages*", "/var/lib/rpm/rpmdb.sqlite*", "/usr/lib/sysimage/rpm/Packages*", "/usr/lib/sysimage/rpm/rpmdb.sqlite*"}
	return eachRecord(t, databases, 0, func(base []byte) {
		for _, at := range bases[string(base)] {
			why[at] = shipped
		}
	})
}

// eachRecord calls do with what lies between separators in the files that the patterns
// match, in memory that does not depend on their size.
func eachRecord(t *tree.Tree, patterns []string, separator byte, do func([]byte)) error {
	for _, p := range patterns {
		paths, err := t.Glob(p)
		if err != nil {
			return err
		}
		for _, at := range paths {
			f, _, err := t.OpenRegular(at, os.O_RDONLY)
			if errors.Is(err, tree.ErrNotRegular) {
				continue
			}
			if err != nil {
				return err
			}
			err = records(f, separator, do)
			if err := errors.Join(err, f.Close()); err != nil {
				return fmt.Errorf("reading /%s: %w", at, err)
			}
		}
	}
	return nil
}

func records(f io.Reader, separator byte, do func([]byte)) error {
	const longest = 4 << 10 // a path is not longer
	r := bufio.NewReaderSize(f, longest)
	for {
		record, err := r.ReadSlice(separator)
		if err == nil || errors.Is(err, io.EOF) {
			do(bytes.TrimSuffix(record, []byte{separator}))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// removeSecrets deletes the files that planRemovals chose, overwritten before.
func (c *cleaner) removeSecrets(ctx context.Context, paths []string) error {
	for _, at := range paths {
		if err := c.t.Wipe(at); err != nil {
			return err
		}
	}
	if err := c.t.Sync(); err != nil {
		return err
	}
	for _, at := range paths {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := c.t.Remove(at)
		if err != nil {
			return fmt.Errorf("removing /%s: %w", at, err)
		}
		c.log.Info("removed a file with a secret", "path", "/"+at)
		c.total.Add(n)
	}
	return nil
}

// measure counts what removing the files would add to the report.
func (c *cleaner) measure(paths []string, r *wire.GeneralizeReport) error {
	for _, at := range paths {
		n, err := c.t.Measure(at)
		if err != nil {
			return err
		}
		c.total.Add(n)
	}
	r.Removed, r.Bytes = c.total.Paths, c.total.Bytes
	return nil
}

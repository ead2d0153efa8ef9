package hollow

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// layPlatform makes the tree that a marketplace image of Linux has before its
// first boot: small, but with the files by which a tool tells what it is.
func (t tree) layPlatform(image string) error {
	parts := strings.Split(image, ":")
	if len(parts) != 4 {
		return fmt.Errorf("platform image %q is not publisher:offer:sku:version", image)
	}
	if err := os.Mkdir(string(t), 0o755); err != nil {
		return err
	}
	for _, folder := range []struct {
		name string
		mode fs.FileMode
	}{
		{"boot/efi/EFI", 0o755}, {"dev", 0o755}, {"etc/ssh", 0o755}, {"etc/systemd/system/multi-user.target.wants", 0o755},
		{"home", 0o755}, {"mnt", 0o755}, {"opt", 0o755}, {"proc", 0o555}, {"root", 0o700}, {"run", 0o755}, {"sys", 0o555},
		{"usr/bin", 0o755}, {"usr/lib/systemd/system", 0o755}, {"usr/local/bin", 0o755},
		{"var/cache/apt", 0o755}, {"var/lib/cloud", 0o755}, {"var/lib/waagent", 0o700}, {"var/lib/dhcp", 0o755},
		{"var/lib/dbus", 0o755}, {"var/lib/systemd", 0o755}, {"var/lib/kubelet", 0o700}, {"var/lib/containerd", 0o711},
		{"var/lib/cni", 0o755}, {"var/log/journal", 0o755}, {"var/log/azure", 0o755}, {"var/spool", 0o755}, {"tmp", 0o777 | fs.ModeSticky},
	} {
		p := filepath.Join(string(t), folder.name)
		if err := os.MkdirAll(p, 0o755); err != nil {
			return err
		}
		if folder.name == "proc" || folder.name == "sys" {
			continue // we mount over them without root's powers
		}
		if err := os.Chmod(p, folder.mode); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"/etc/os-release":          "../usr/lib/os-release",
		"/lib":                     "usr/lib",
		"/bin":                     "usr/bin",
		"/var/run":                 "/run",
		"/var/lib/dbus/machine-id": "/etc/machine-id",
		"/etc/mtab":                "../proc/self/mounts",
	} {
		if err := t.symlink(target, name); err != nil {
			return err
		}
	}
	for _, file := range []struct {
		name    string
		content string
		mode    fs.FileMode
	}{
		{"/usr/lib/os-release", osRelease(parts), 0o644},
		{"/etc/machine-id", "", 0o444},
		{"/etc/hostname", "localhost\n", 0o644},
		{"/etc/hosts", "127.0.0.1 localhost\n::1 ip6-localhost ip6-loopback\n", 0o644},
		{"/etc/fstab", "UUID=11111111-2222-4333-8444-555555555555 / ext4 discard,errors=remount-ro 0 1\nUUID=AB12-CD34 /boot/efi vfat umask=0077 0 1\n", 0o644},
		{"/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nsshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n", 0o644},
		{"/etc/shadow", "root:*:19000:0:99999:7:::\n", 0o640},
		{"/etc/ssh/sshd_config", "PasswordAuthentication no\n", 0o644},
		{"/etc/cloud/cloud.cfg", "preserve_hostname: false\nssh_deletekeys: true\ndatasource_list: [ Azure ]\n", 0o644},
		{"/etc/waagent.conf", "Provisioning.Agent=auto\nResourceDisk.Format=n\n", 0o644},
		{"/etc/resolv.conf", "nameserver 168.63.129.16\n", 0o644},
		{"/usr/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/local/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubeconfig --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml\nRestart=always\n[Install]\nWantedBy=multi-user.target\n", 0o644},
		{"/usr/local/bin/kubelet", "#!/bin/false\n", 0o755},
		{"/var/lib/containerd/images.json", "[]\n", 0o600},
		{"/var/log/wtmp", "", 0o664},
		{"/var/log/lastlog", "", 0o664},
		{"/boot/vmlinuz", "kernel\n", 0o600},
	} {
		if err := t.writeFile(file.name, []byte(file.content), file.mode); err != nil {
			return err
		}
	}
	return t.symlink("/lib/systemd/system/kubelet.service", "/etc/systemd/system/multi-user.target.wants/kubelet.service")
}

// osRelease says what a marketplace image calls itself, as far as its names tell.
func osRelease(image []string) string {
	offer, sku, version := strings.ToLower(image[1]), strings.ToLower(image[2]), image[3]
	all := offer + " " + sku
	switch {
	case strings.Contains(all, "ubuntu"):
		release := "22.04"
		for _, r := range []string{"18.04", "20.04", "22.04", "24.04", "26.04"} {
			if strings.Contains(all, r) || strings.Contains(all, strings.ReplaceAll(r, ".", "_")) {
				release = r
			}
		}
		return fmt.Sprintf("PRETTY_NAME=\"Ubuntu %s LTS\"\nNAME=\"Ubuntu\"\nVERSION_ID=\"%s\"\nID=ubuntu\nID_LIKE=debian\nIMAGE_VERSION=%s\n", release, release, version)
	case strings.Contains(all, "debian"):
		return fmt.Sprintf("PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\nIMAGE_VERSION=%s\n", version)
	case strings.Contains(all, "flatcar"):
		return fmt.Sprintf("PRETTY_NAME=\"Flatcar Container Linux by Kinvolk %s\"\nNAME=\"Flatcar Container Linux by Kinvolk\"\nVERSION_ID=%s\nID=flatcar\n", version, version)
	case strings.Contains(all, "azure-linux"), strings.Contains(all, "mariner"):
		return fmt.Sprintf("PRETTY_NAME=\"Microsoft Azure Linux 3.0\"\nNAME=\"Microsoft Azure Linux\"\nVERSION_ID=\"3.0\"\nID=azurelinux\nIMAGE_VERSION=%s\n", version)
	}
	return fmt.Sprintf("PRETTY_NAME=\"Linux (%s %s)\"\nNAME=\"Linux\"\nID=linux\nVERSION_ID=\"%s\"\n", image[1], image[2], version)
}

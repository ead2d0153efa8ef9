package generalize

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/redact"
	"github.com/ortet/ortet/internal/wire"
)

var update = flag.Bool("update", false, "write docs/reference/generalize.md")

// docs/reference/generalize.md is written from the table and the rules, so that it cannot
// say anything else than what is done: go test ./internal/node/generalize -run
// TestDocumentation -update
func TestDocumentation(t *testing.T) {
	file := filepath.Join("..", "..", "..", "docs", "reference", "generalize.md")
	want := documentation()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table says; run this test with -update", file)
	}
}

func documentation() string {
	var b strings.Builder
	b.WriteString(`# What generalising removes

This page is a reference for operators: what a capture removes from the copied disk, and what its scan finds. It is
written from the code.

` + "`ortet-node generalize`" + ` works on a copy of the donor's disk, never on the donor's. Before it changes anything, it refuses

- a disk that is not the donor's, or is a control plane's
- a disk that sets ` + "`preserve_hostname: true`" + `
- a disk whose configuration (` + "`ortet-node config`" + `) is half applied
- a disk whose newest kernel in ` + "`/boot`" + ` has no NVIDIA driver, while another kernel has one (by its ` + "`modules.dep`" + `), as
  an update of packages may leave it.

Then it adds a line (date, donor, capture) to ` + "`/var/log/ancestry.log`" + `, seals to the caller's key what cannot be read
back from Azure (customData, protected settings), cleans by the tables below, and scans the whole tree.

- *last*: done only after the scan has passed, so that a run that was killed, or whose scan failed, can be repeated. If
  the report is lost after that, the next one says that the copy has to be made again (` + "`resumed`" + `, ` + "`unsaved`" + `).
- *shred*: overwritten with zeros, then removed, since a snapshot copies freed blocks too. At the end freed
  blocks are returned to the disk.
- *empty*: the file stays, with owner and mode.

`)
	group, rows := "", pathRows{}
	for _, r := range Table() {
		if r.Group != group {
			rows.write(&b)
			group, rows = r.Group, pathRows{head: "## " + r.Group + "\n\n| path | what is done | why |\n|---|---|---|\n"}
		}
		what := string(r.Action)
		switch {
		case r.Action == Edit:
			what = r.What
		case r.What != "":
			what = "shred if " + r.What
		}
		if r.When != "" {
			what += " (bootstrap " + string(r.When) + ")"
		}
		if r.Last {
			what += ", *last*"
		}
		path := "`" + r.Path + "`"
		if r.Path == "/" {
			path = "the runtime's folders"
		}
		rows.add(path, what, r.Why)
	}
	rows.write(&b)
	b.WriteString(`Not removed on purpose: ` + "`/etc/resolv.conf`" + `, the image stores, programs of agents and extensions, bootstrap
kubeconfigs and tokens (see the scan). Hooks in ` + "`/etc/cloud/clean.d`" + ` are named in the report and never run.

Refused as a node's identity are those below: the agent makes no new one, or keeps it where its configuration says. A path
without a slash at its beginning is the end of a path:

`)
	agents := pathRows{head: "| path | what it holds | what to do |\n|---|---|---|\n"}
	for _, a := range agentFiles() {
		sign := "anything"
		if a.sign != "" {
			sign = "`" + a.sign + "`"
		}
		agents.add("`"+a.path+"`", sign, a.remedy)
	}
	agents.write(&b)
	b.WriteString(`## Tunings

` + "`" + `/etc/ortet/tuned.json` + "`" + ` lists the files that [` + "`" + `ortet capture --tune` + "`" + `](capture.md#tunings) added, with their SHA-256, which each capture removes first. A tuning of which somebody changed a file stays as a whole, since its files need each other, and the report names these files (` + "`" + `tunedKept` + "`" + `).

The disk is refused unchanged if the list has other paths than tunings', ` + "`" + `..` + "`" + ` or links, is of a newer version, cut, or larger than 64 KiB.

A tuning is refused, with file and line, where:

| tuning | refused |
|---|---|
| all | its file is there, and no capture added it as it is |
| ` + "`" + `kubelet-early` + "`" + ` | ` + "`" + `--bootstrap keep` + "`" + `; not with ` + "`" + `runtime-early` + "`" + `; no ` + "`" + `kubelet.service` + "`" + ` or ` + "`" + `cloud-init-local.service` + "`" + ` is on the disk; cloud-init is off; the kubelet's unit is masked, a link to another name, lies in ` + "`" + `/etc` + "`" + `, has no ` + "`" + `Restart=always` + "`" + `, or has ` + "`" + `ExecStartPre=` + "`" + ` or ` + "`" + `ExecCondition=` + "`" + ` of anything but the wait for the join; a unit that is copied lies in ` + "`" + `/etc` + "`" + ` (move it to ` + "`" + `/usr/local/lib/systemd/system` + "`" + `), or a drop-in orders it after what may be late; a unit before the kubelet (also an instance of a template, and one that another unit starts) that waits for more than the network, cloud-init's local stage and units of systemd, or names none of them; on Debian and Ubuntu, a unit in ` + "`" + `/etc` + "`" + ` that names neither the network nor cloud-init; ` + "`" + `--root-dir` + "`" + `, or ` + "`" + `/var/lib/kubelet` + "`" + ` by a link; a line of ` + "`" + `/etc/fstab` + "`" + ` with ` + "`" + `nofail` + "`" + `, ` + "`" + `noauto` + "`" + `, ` + "`" + `_netdev` + "`" + `, an order, or of cloud-init (temporary disks); ` + "`" + `mounts` + "`" + `, ` + "`" + `swap` + "`" + `, ` + "`" + `disk_setup` + "`" + `, ` + "`" + `fs_setup` + "`" + `, ` + "`" + `bootcmd` + "`" + `, ` + "`" + `write_files` + "`" + `, ` + "`" + `ca_certs` + "`" + `, ` + "`" + `manage_etc_hosts` + "`" + `, ` + "`" + `manage_resolv_conf` + "`" + `, ` + "`" + `hostname` + "`" + ` or ` + "`" + `fqdn` + "`" + ` in cloud-init's configuration; SELinux enforces |
| ` + "`" + `runtime-early` + "`" + ` | no ` + "`" + `containerd.service` + "`" + ` is on the disk (Flatcar: /usr is on another partition; k3s), or it is masked; a unit or drop-in orders it after cloud-init, the network or remote file systems; ` + "`" + `ExecStartPre=` + "`" + ` or ` + "`" + `ExecCondition=` + "`" + ` of anything but modprobe; ` + "`" + `root` + "`" + ` or ` + "`" + `state` + "`" + ` of containerd's configuration elsewhere, or ` + "`" + `/var/lib/containerd` + "`" + ` by a link; a snapshotter other than overlayfs and native; ` + "`" + `imports` + "`" + `; with ` + "`" + `--bootstrap keep` + "`" + `, user data that names containerd or packages |
| ` + "`" + `ssh-host-key` + "`" + ` | cloud-init is off, or its module ` + "`" + `ssh` + "`" + ` is not in the last list ` + "`" + `cloud_init_modules` + "`" + `; ` + "`" + `ssh_genkeytypes` + "`" + ` or ` + "`" + `ssh_keys` + "`" + ` is set (Azure Linux, RHEL), with ` + "`" + `--bootstrap keep` + "`" + ` in user data too; sshd names host keys, or algorithms, without Ed25519, or a host certificate of another kind; FIPS mode |

## The list of what is in the image

Names and versions on the generalised copy, no content of files:

| what | from where |
|---|---|
| system | ` + "`" + `os-release` + "`" + ` |
| packages with architecture and source package | dpkg's ` + "`" + `/var/lib/dpkg/status` + "`" + ` and ` + "`" + `status.d` + "`" + `; RPM's database in ` + "`" + `/var/lib/rpm` + "`" + `, ` + "`" + `/usr/lib/sysimage/rpm` + "`" + ` or ` + "`" + `/usr/share/rpm` + "`" + `: ` + "`" + `rpmdb.sqlite` + "`" + ` (SQLite), ` + "`" + `Packages` + "`" + ` (Berkeley DB, as on RHEL 8), ` + "`" + `Packages.db` + "`" + ` (ndb, as on SUSE) |
| kernels | ` + "`" + `/boot/vmlinuz-*` + "`" + `, and ` + "`" + `/lib/modules` + "`" + ` with a ` + "`" + `modules.dep` + "`" + ` |
| kubelet, containerd | their package; else the build information of the program, also of k3s or RKE2 |
| container images | containerd's ` + "`" + `meta.db` + "`" + ` |
| enabled units | links in ` + "`" + `/etc/systemd/system/*.wants` + "`" + ` and ` + "`" + `*.requires` + "`" + ` |
| bytes | the size of the files below each top folder |

What cannot be read is named in the list: apk's database, changes in a ` + "`" + `-wal` + "`" + ` file, images of Docker and CRI-O,
a damaged database; of one that is cut, what could be read is listed. Databases of dpkg and RPM are both listed, and of RPM all kinds in a folder,
though it uses one: the list says so. Beyond 64 KiB compressed or 1 MiB unpacked the longest part is cut, and it says so. Bytes that are not printable ASCII become ` + "`" + `?` + "`" + `.

## The scan

Every regular file is read whole, in bounded memory; what cannot be read, or lies beyond 64 GiB, is a finding.
A finding says path, rule and line, never the value. There are three classes:

| class | what it is | what may be done |
|---|---|---|
| node identity | lets a clone act as the donor, or as its cluster | nothing: the disk is refused |
| pool credential | all nodes of the pool have it, and clones may need it to join or to fetch images | refused, or kept with ` + "`--accept-pool-credentials`" + ` |
| other secret | what people and programs of the node have | refused, kept with ` + "`--accept-secret PATH`" + `, or its file deleted with ` + "`--remove-secrets`" + ` |

` + "`--accept-secret`" + ` names one file, or a folder with ` + "`/`" + ` at its end; it may be repeated. ` + "`--remove-secrets`" + ` overwrites and deletes
files on the copy, once nothing else fails the scan; each is listed. It refuses, with the reason, a file that

- a package ships: one that dpkg lists, or whose base name RPM's database has
- also holds a secret of another class, has other hard links, or is part of an image
- the node may boot, log in, connect or join by: ` + pathsText(needed()) + `.

### What is found, and what is not

**By value**, on every tree and in image layers too: the donor's own secrets. They are read before anything is removed:

`)
	own := pathRows{head: "| from | rule |\n|---|---|\n"}
	for _, o := range slices.SortedStableFunc(slices.Values(ownSecrets()), func(a, b ownSecret) int { return cmp.Compare(a.rule, b.rule) }) {
		own.add("`"+o.pattern+"`", "`"+o.rule+"`")
	}
	own.write(&b)
	b.WriteString(`A private key is known by its private numbers, so it is found also where it was written again in another format.
These wrappings are undone, within each other too:

- base64 and base64url: lines of any length, any indentation, any offset
- hexadecimal: both cases, with colons, blanks, ` + "`\\x` or `0x`" + `
- escapes of JSON, YAML, C, shells, URLs, quoted-printable and XML; UTF-16 and UTF-32 of ASCII
- dumps with columns of ` + "`xxd`, `hexdump`, `tcpdump -X`, gdb's `x/xb` and `od` (`-t x1`, `x2`, `x4`, `x8`)" + `: offsets and the column of text are skipped; a row may be indented
- gzip and deflated files of a zip: two within each other, up to 8 MiB unpacked of those that begin in a piece of 1 MiB
- zlib streams within the same bounds, where the file begins as one: git's loose objects
- text before and after each line of a key (logs, diffs, ` + "`cat -n`" + `, colour codes, shell traces), in lines of 40 characters or more.

Not found:

- what is encrypted (PKCS#12 or PEM with a password, LUKS), or packed with xz, zstd, bzip2 or lz4
- what a compressed file holds beyond its first 8 MiB unpacked: most of an archive, and of a compressed layer
- a secret that is split over several files, or takes more than 64 KiB with its wrapping
- what git has in packs, with deltas or without, and other zlib streams within a file
- decimal numbers (` + "`journalctl -o json`" + ` writes a message with control characters so), octal dumps, ` + "`" + `od -c` + "`" + `, uuencode, dumps with other words before the offsets, little-endian numbers
- text that was made to exhaust the search: 64 MiB of views of one piece are looked at
- text around each line of a key in shorter lines, or in base64 of PEM, where nothing finds the key by form
- the k3s node password in capitals, which the server refuses
- Secrets in etcd's or SQLite's pages that overflow pages cut apart, where neither the file's path nor one whole record shows the store
- a swap file of more than 64 MiB on a running node, before its copy is made
- a LUKS key file, which is random bytes, but in ` + "`/etc/cryptsetup-keys.d`" + `, ` + "`/etc/luks-keys`" + `, or where ` + "`/etc/crypttab`" + ` names it
- what only a name shows to be a secret in a database, such as SQLite's below ` + "`/srv`" + `
- a value of fewer than 8 bytes, or fewer than 4 different ones; a file of more than 1 MiB in the table above.

A disk of 20 GB in 424,000 files, two fifths of it image layers, takes 140 s on two cores: 10 s of processor time a GB, 220 MiB resident
(` + "`make bench BENCH=scan DISK=20`" + `; the tree was written just before, so a part of it came from memory).

**By form**: the kinds of the rules below, which need no knowledge of the donor. They are not searched for in programs, nor where only
packages write (` + pathsText(vendor()) + `; but in ` + pathsText(units()) + ` they are), nor in compressed data. A kind that has no rule is not found.
A private key that is found by form is compared with the donor's own keys; what is one of them is a node's identity.
` + formsText() + `
**Image layers** of containerd, Docker and CRI-O came from registries. They are searched by value; other kinds are skipped, and
the report lists each store with its bytes. ` + "`--scan-images`" + ` searches unpacked layers by form too. A compressed blob is not unpacked beyond
the bounds above; its unpacked layer is searched. Without its database a snapshotter's folder is searched as any other.

A report lists 200 findings at most, of each rule as many as of any other, and counts the rest.

` + sharesText() + `### Rules

`)
	for _, class := range []struct {
		of   wire.SecretClass
		name string
	}{{wire.NodeIdentity, "node identity"}, {wire.PoolCredential, "pool credential"}, {wire.OtherSecret, "other secret"}} {
		fmt.Fprintf(&b, "| rule | %s that it finds |\n|---|---|\n", class.name)
		for _, r := range append(Rules(), redact.Rules()...) {
			if r.Class == class.of {
				fmt.Fprintf(&b, "| `%s` | %s |\n", r.Name, r.Finds)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("The donor's names and addresses count where a clone reads them at its start: ")
	b.WriteString(pathsText(state()))
	b.WriteString(". Elsewhere they are listed as mentions and do no harm.\n")
	return b.String()
}

// pathRows are rows of a table, whose first cell lists the paths of which the others are true.
type pathRows struct {
	head string
	rows [][]string
}

// add adds a row, or a path to the last one. A reason "as above" is the last one's.
func (p *pathRows) add(path string, cells ...string) {
	if n := len(p.rows); n > 0 {
		last := p.rows[n-1]
		if end := len(cells) - 1; slices.Equal(last[1:], cells) || cells[end] == "as above" && slices.Equal(last[1:end+1], cells[:end]) {
			last[0] += ", " + path
			return
		}
	}
	p.rows = append(p.rows, append([]string{path}, cells...))
}

func (p *pathRows) write(b *strings.Builder) {
	if len(p.rows) == 0 {
		return
	}
	b.WriteString(p.head)
	for _, row := range p.rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	b.WriteString("\n")
}

// pathsText lists paths below the root.
func pathsText(paths []string) string {
	var quoted []string
	for _, p := range paths {
		quoted = append(quoted, "`/"+p+"`")
	}
	return strings.Join(quoted, ", ")
}

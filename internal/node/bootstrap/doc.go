// Package bootstrap waits on a node until it is known whether it came up, and
// says so (`ortet-node wait`). It watches, by notification and not by looking
// again and again,
//
//   - the sentinel of Cluster API's bootstrap contract
//     (/run/cluster-api/bootstrap-success.complete, on Windows the same below C:\),
//   - cloud-init's status.json and result.json in /run/cloud-init and
//     /var/lib/cloud/data,
//   - AKS's /var/log/azure/aks/provision.json,
//   - systemd units that are named, over D-Bus,
//   - and, once the node says that it is done, the kubelet's health, which alone
//     has to be asked for.
//
// Folders that are not there yet are waited for at the nearest parent that is;
// what happened before the watch began is found by looking after it has.
//
// # How it is decided
//
// decide is pure: what was seen so far and the time give the verdict, or nothing
// yet. cloud-init's result without a sentinel is a failure at once, where a
// sentinel is expected. A sentinel is a success only once the kubelet has been
// healthy for as long as is asked; a kubelet that crash-loops after it is a
// failure. At the deadline what there is is judged. The reason, its owner and
// the lines that show it come from internal/verdict.
//
// # What it leaves
//
// The verdict is written to /var/lib/ortet/verdict.json (on Windows
// C:\ProgramData\Ortet\verdict.json), by a new file and a rename, with the
// boot's id: a later boot waits anew, and the same boot tells the same verdict
// at once. It is told on the serial console in one line (wire.ConsoleLine), and
// posted to the admission server where one is known. A full disk keeps nothing
// from being told in the other ways.
//
// Files are read as hostile: bounded, whatever their size, not followed through
// links out of their folder, and read again where they changed meanwhile.
package bootstrap

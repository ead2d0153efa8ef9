// Package bootstrap waits on a node until it is known whether it came up, and reports the
// verdict (`ortet-node wait`). It watches, by notification and not by polling,
//
//   - the sentinel of Cluster API's bootstrap contract
//     (/run/cluster-api/bootstrap-success.complete, on Windows the same below C:\),
//   - cloud-init's status.json and result.json in /run/cloud-init and
//     /var/lib/cloud/data,
//   - AKS's /var/log/azure/aks/provision.json,
//   - systemd units that are named, and those that run a kubelet or end
//     cloud-init, over D-Bus; on Windows services,
//   - and, once the node says that it is done, the kubelet's health and the Node in
//     the cluster, which alone have to be asked for: once a second, and after a
//     minute every five.
//
// Folders that are not there yet are waited for at the nearest parent that is;
// what happened before the watch began is found by looking after it has.
//
// # How it is decided
//
// decide is pure: the observations so far and the time yield the verdict, or nothing yet.
// The first row that fits counts.
//
//	before the boot's end
//	  provision.json with an ExitCode other than 0        failed
//	  the sentinel is a file                              the end
//	  provision.json with ExitCode 0                      the end
//	  cloud-final.service failed, there is no result      failed
//	  a sentinel is expected: result without it           failed, at once
//	  a sentinel is expected: else                        wait
//	  none is, AKS provisions this node                   wait
//	  none is, cloud-init's result                        the end
//	  none is, cloud-init is enabled or has begun         wait
//	  none is, nothing of these is on the node            the end
//	after it
//	  a unit asked for failed, or crash-loops             failed
//	  the kubelet does not count                          came up
//	  its unit failed, or crash-loops                     failed
//	  not healthy for --grace (2 min)                     failed
//	  not healthy, or not yet for --settle (10 s)         wait
//	  --node no, or the API server cannot be asked        came up
//	  the Node is there and Ready                         came up
//	  it is there, and --node registered                  came up
//	  it was not there for --grace since the kubelet      failed
//	  settled
//	  it is not there yet, or not Ready                   wait
//	  a unit asked for is not active yet                  wait, in place of came up
//	  cloud-init goes on, or AKS's provisioning is to     wait, in place of came up
//	  come, for --grace after the end
//	at the deadline                                       time is up
//	judged again (below), where a row of the first part says failed
//	  the kubelet is healthy and the Node Ready by the    came up, Degraded
//	  rows after the end
//	  else what these rows say, also at the deadline      failed, as before
//
// A sentinel is expected, except with --sentinel none, with AKS's folder, or if none will
// be written in this boot. That is so after a cloud-init that skipped the user's commands,
// which ran in an earlier boot (by its log or a verdict of that boot; /run is empty after a
// reboot), and where neither the sentinel's folder nor its name in cloud-init's input
// promises it, as on a clone that joins by itself, or a node of k3s's own installer. If none
// will be written, or provision.json is of an earlier boot, the end is only assumed:
// lateness is no failure then before the deadline. Errors of cloud-init's own rule this out.
//
// On AKS a CustomScript makes the node, which the Azure agent begins some seconds after
// cloud-init has ended; even its result's folder may be missing before its end. It runs if
// the folder exists, or its log was written in this boot. It is expected if cloud-init's
// input in this boot writes AKS's scripts, and is waited for within --grace, since a clone
// may have that input and no CustomScript. Scripts or an old log on the disk are no
// evidence: every image of such a node has them. Once it runs, an assumed end no longer
// counts.
//
// cloud-init writes result.json after the commands that write the sentinel have ended, and
// decide's caller reads the sentinel after the result: so a missing one is not just late.
// The links in /run/cloud-init separate the files of this boot from an earlier one's in
// /var/lib/cloud/data.
//
// The sentinel is not cloud-init's last step: later commands may break the kubelet, or fail
// themselves, which is reported as Degraded. So no boot is a success while cloud-init runs;
// --grace bounds that for commands that never end.
//
// A crash loop is three restarts by systemd after the boot's end: before it, a kubelet that
// is on the image and not configured yet restarts all the time, and one restart may be for
// a runtime that came up later. The kubelet's healthy time counts from its unit's start
// where systemd reports that, so a kubelet that has been up for --settle when the sentinel
// comes costs one question and no waiting.
//
// # The node in its cluster
//
// A kubelet's /healthz only shows that its loops run. Whether the cluster has the node, and
// calls it Ready, is asked of the API server with the kubelet's own address, CA and client
// certificate (its kubeconfig). So we see the kubelet's own errors: a wrong CA, a firewall,
// a certificate that was never signed, Forbidden. One Node is read, and nothing is changed.
// A Node of another boot id does not count, since a reboot or an earlier machine of this
// name left it.
//
// A node that is not registered within --grace has failed: kubelets do that
// within seconds of reaching the API server. One that is registered and not Ready
// may only wait for its network, which a DaemonSet brings minutes later: it is
// waited for up to the deadline and then TimedOut, as the controller does, with
// the reason in the Node's condition (CNINotReady, ContainerRuntimeUnavailable,
// NodeNotReady). A kubelet that restarts meanwhile has --grace again.
//
// If the API server does not answer us, the kubelet's journal counts: a kubelet may
// register in a way unknown to us, as by a proxy. Without a kubeconfig, or with tokens or
// programs in place of a certificate, the API server is not asked and the node does not
// fail by this. RKE2's kubelet writes to a file in place of the journal (k3s to its
// unit's): only its lines of this boot count, by their times.
//
// What became of the boot, the reason, its owner and the lines that show it are
// judged by internal/boots/verdict from what was seen and the ends of the logs.
//
// # What it leaves
//
// The verdict is written to /var/lib/ortet/verdict.json (on Windows
// C:\ProgramData\Ortet\verdict.json), by a new file and a rename, with the boot's id and a
// digest of the question: sentinel, units, kubelet, node, settle and grace. A later boot or
// another question waits again; the same question in the same boot returns the same
// verdict, at once. The file has one verdict, the last, and the one before until then.
//
// TimedOut is never returned again. The others are about the node; it is about the caller's
// patience, which is not part of the question. A retry waits for its own timeout, and a
// node that came up meanwhile has come up.
//
// The verdict is printed on the serial console in one line (wire.ConsoleLine), and posted
// to the admission server where one is known. A full disk does not prevent these; then the
// file is in /run/ortet until the reboot.
//
// Files are read as hostile: bounded, whatever their size, not followed through
// links out of their folder, nothing but regular files, and read again where they
// changed meanwhile.
//
// # Judged again
//
// A failed node may be repaired, by hand mostly. A failure keeps its verdict until a new
// judgement is requested (Options.After: --again, or another configuration of the
// extension). A Succeeded verdict is final: later errors are no failure of a boot.
//
// cloud-init's and AKS's records of the boot do not change, and a missing sentinel stays
// missing. So these alone do not count in a new judgement: the node has --grace to show
// that it works, as the cluster confirms. Without that (--node no, no client certificate)
// an answering kubelet proves nothing, and the node stays Failed. A node that works is
// Degraded, with the failure's reason and its evidence in Ignored: the next node that is
// made the same way will fail again. So is a node that failed after its bootstrap, with
// only the old verdict as evidence; so it stays Degraded in later judgements.
// After TimedOut it Succeeded: it was late.
//
// # Windows
//
// Sentinel, deadline, kubelet and the node in its cluster are the same there. What
// is another:
//
//   - Services stand for systemd's units, by the service control manager: RUNNING
//     is active, a pending state or PAUSED activating, STOPPED with a code of its
//     own failed, unless its recovery actions start it anew (auto-restart). Windows
//     does not count starts, so they are counted here, those too that a wrapper
//     such as NSSM tells of while its own process goes on. A kubelet that such a
//     wrapper starts anew without a word shows in /healthz alone. Changes are
//     notified of; where that is refused, services are asked once a second.
//   - The end of cloudbase-init's service stands for cloud-init's result, 30 s
//     later, since a plugin may have the machine reboot. It tells of no stages and
//     no errors, and the log's tail is what there is to judge by.
//   - C:\run is a folder like others: a sentinel outlives the boot, and says that
//     the bootstrap succeeded once.
//   - Boots have no ids: one is known again by when it began, and a Node counts
//     whatever boot it is of. There is no console line.
//   - The kubelet's and containerd's files stand for the journal; the event log is
//     not read.
package bootstrap

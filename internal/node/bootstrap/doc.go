// Package bootstrap waits on a node until it is known whether it came up, and
// says so (`ortet-node wait`). It watches, by notification and not by looking
// again and again,
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
// decide is pure: what was seen so far and the time give the verdict, or nothing
// yet. The first row that fits counts.
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
// A sentinel is expected unless --sentinel none says otherwise, or AKS's folder
// is there, or nobody will write one in this boot: cloud-init passed over the
// user's commands, which ran in an earlier boot (its log says so, or a verdict of
// that boot; /run is empty after a reboot, and nobody writes the sentinel again);
// or neither its folder nor its name in what cloud-init was given promises it, as
// on a clone that joins by itself, or a node of k3s's own installer. In the last
// three cases, and where provision.json is of an earlier boot, the end is only
// assumed: nothing is called a failure for being late then, but only at the
// deadline. Errors of cloud-init's own keep that from applying.
//
// On AKS a CustomScript makes the node, which the Azure agent begins some seconds
// after cloud-init has ended; of its result not even the folder need be there
// before its end. It runs where the folder is there, or its log was written in this
// boot; it is to come where what cloud-init was given in this boot writes AKS's
// scripts, and is waited for within --grace, since a clone may have been given
// them and no CustomScript. That the scripts, or an old log, lie on the disk says
// nothing: that is so on every image made of such a node. An end that was only
// assumed is none any more once it runs.
//
// cloud-init writes result.json after the commands that write the sentinel have
// ended, and decide's caller reads the sentinel after the result: that it is
// missing then is no matter of time. The links in /run/cloud-init tell the files
// of this boot from what an earlier one left in /var/lib/cloud/data.
//
// The sentinel is not the last that cloud-init does: commands that come after it
// may break the kubelet, or fail themselves, which is told as Degraded. So as long
// as cloud-init goes on nothing is called a success; --grace bounds that for those
// whose commands never end.
//
// A crash loop is three restarts by systemd after the boot's end: before it, a
// kubelet that is on the image and not configured yet restarts all the time, and
// one restart may be for a runtime that came up later. How long the kubelet has
// been healthy counts from its unit's start where systemd tells that, so a
// kubelet that has been up for --settle when the sentinel comes costs one question
// and no waiting.
//
// # The node in its cluster
//
// /healthz of a kubelet tells that its loops run, and no more. Whether the
// cluster has the node, and calls it Ready, is asked of the API server with the
// kubelet's own address, CA and client certificate (its kubeconfig): what it says
// to us is what it says to the kubelet, so a wrong CA, a firewall, a certificate
// that was never signed or a Forbidden show in the same words. One Node is read,
// and nothing is changed. A Node of another boot id does not count, since a
// reboot or an earlier machine of this name left it.
//
// A node that is not registered within --grace has failed: kubelets do that
// within seconds of reaching the API server. One that is registered and not Ready
// may only wait for its network, which a DaemonSet brings minutes later: it is
// waited for up to the deadline and then TimedOut, as the controller does, with
// the reason in the Node's condition (CNINotReady, ContainerRuntimeUnavailable,
// NodeNotReady). A kubelet that restarts meanwhile has --grace again.
//
// Where the API server gives us no answer the kubelet's journal counts: one that
// registered did so in a way that we do not know, as by a proxy. Where there is no
// kubeconfig, or one with tokens or programs in place of a certificate, nobody is
// asked, and nothing is held against the node. RKE2's kubelet writes to a file in
// place of the journal (k3s does to its unit's): of it the lines of this boot count,
// by their times, since it goes on over boots.
//
// What became of the boot, the reason, its owner and the lines that show it are
// judged by internal/boots/verdict from what was seen and the ends of the logs.
//
// # What it leaves
//
// The verdict is written to /var/lib/ortet/verdict.json (on Windows
// C:\ProgramData\Ortet\verdict.json), by a new file and a rename, with the
// boot's id and a digest of what was asked: sentinel, units, kubelet, node, settle
// and grace. A later boot waits anew, and so does another question; the same
// question in the same boot is answered by the same verdict, at once. The file
// holds one verdict, the last, and the one before until then.
//
// TimedOut is never given again. The others say what became of the node; it says
// how long somebody was ready to wait, which is not part of the question. Who asks
// again waits for as long as he says, and a node that came up meanwhile has come up.
//
// It is told on the serial console in one line (wire.ConsoleLine), and posted to
// the admission server where one is known. A full disk keeps nothing from being
// told in the other ways; then the file is in /run/ortet until the reboot.
//
// Files are read as hostile: bounded, whatever their size, not followed through
// links out of their folder, nothing but regular files, and read again where they
// changed meanwhile.
//
// # Judged again
//
// A node that failed may be mended, by hand mostly. What failed keeps its verdict
// until somebody says that it is to be judged again (Options.After: --again, or
// another configuration of the extension). A boot that Succeeded has, and is not:
// what goes wrong later is no failure of a boot.
//
// What cloud-init and AKS wrote of the boot stays as it was, and a sentinel that was
// missing is missing. So that alone does not count then: the node has --grace to
// show that it works, which takes the cluster's word; without that (--node no, no
// client certificate) a kubelet that answers proves nothing, and it stays Failed.
// One that works is Degraded, with the reason of the failure and with what it said
// in Ignored: the next node that is made the same way will fail again. So is one
// that failed after its bootstrap, of which nothing is left but the old verdict; so
// it stays Degraded whenever it is judged again.
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

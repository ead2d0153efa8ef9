// Package boot collects on a node what is known there of its boot
// (`ortet-node report`), and hands it on.
//
// It runs once, after the node is up and off everybody's path, and reads:
// what systemctl shows of systemd (the manager's times, and of each unit that was
// started its times and what it is ordered after), the journal of this boot, and through
// internal/boots/timeline/source the files of cloud-init, the Azure agent, its
// extensions, AKS, Hyper-V's key-value pairs, and the kubelet's own gauges. What is
// missing is named in the report and is never fatal.
//
// The report is kept in /var/lib/ortet/boots, the newest few; it is given to the
// cluster as an annotation of the node's own Node (compressed, bounded, less
// detailed rather than too large), from where the controller takes it into its
// store; and posted to the admission server where there is one.
package boot

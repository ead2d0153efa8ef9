// Package prove decides whether an image serves: by clones of it in a canary before the
// version goes live ([Judge]), and by the first nodes of the version after that ([Watch]).
// It is pure: what Azure and the cluster show goes in, a [Judgement] comes out.
//
// # Gates
//
// A clone is compared with a [Baseline], the pool's nodes of other images. Baseline.Limit is
// 1.5 × the 90th percentile of their boots and a minute, at least 3 minutes; 15 if no boot is known.
//
//	gate        fails if                                                when
//	boot        it is stopped, or not provisioned, and has no Node      Limit after its creation
//	join        it is provisioned, and has no Node                      Limit after its creation
//	ready       its Node is not Ready                                   Limit after its creation
//	slow        its Node was Ready later than that                      at once
//	identity    its Node has the machine id of another, or the donor's  at once
//	verdict     ortet.io/BootSucceeded is False on a Ready Node         Limit after Ready
//	conditions  a condition or taint that most nodes of the pool lack   Limit after Ready
//	daemonset   a DaemonSet of the Baseline has no Ready pod on it      Limit after Ready
//	restarts    Node and DaemonSets' pods do not stay Ready for Soak    Limit and Soak after Ready
//	devices     fewer of an extended resource than the donor before     Limit and Soak after Ready
//	            its drain, on a machine of the donor's size
//
// What counts from Ready ends at 2 × Limit (and Soak) after the creation at the latest, so no
// clone waits for ever. A restart begins the soak again and fails nothing by itself, since one
// is common at boot. A False verdict is waited for, since the controller takes it back from a
// node that stays Ready. A missing verdict is no failure: the controller may be away.
//
// Addresses and system UUIDs are not compared: no disk holds a UUID, Azure drops what comes from
// a foreign address, and Nodes behind one load balancer may share an external one.
//
// # No result
//
// A clone says nothing of the image if it is being deleted or is deallocated (as an evicted Spot
// instance is), if Azure did not start it, or if the catalogue's owner of the reason is the
// platform or the network. So does one that fails any gate but identity while others fail:
//   - the cluster did not answer after the clone was made (Observation.Outage);
//   - a tenth of the instances of other images, at least one, fail since Begun: their Node is not
//     Ready, a DaemonSet of the Baseline is not (if their Pods are known), or they were made in the
//     same minutes and fail a gate. Those that are cordoned, deleted or deallocated do not count.
package prove

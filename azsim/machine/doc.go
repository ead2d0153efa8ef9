// Package machine is the Substrate of real machines: every computer is an
// operating system of its own, with systemd as its first process, a network
// namespace, and an OS disk that is a partitioned image file on a loop device.
// Disks, snapshots and image versions are such files too, so that a clone
// differs from its donor in just what the bytes differ in.
//
// A machine is a container of runc, since nested virtualization is rarely to be
// had. What a hypervisor and a platform would do from outside is done from
// outside here as well, and leaves no trace on the disk: addresses and routes,
// device nodes, the metadata service, the provisioning seed.
//
// The machines' network is a bridge in a network namespace of its own (the
// fabric), so that firewall rules of the host and other labs do not matter:
//
//	machine ── veth ── bridge (.1, default gateway, frontends) ── veth ── host (.2)
//
// It needs root on Linux, runc, ip and mount; tested on Debian 12 with cgroup
// v1. Hosts with only cgroup v2 are untested.
//
// What is left behind by a killed process is found by looking, not by a
// record: every name carries a prefix made from the folder's path. See Clean.
package machine

// Package elastic runs the commands of ortet cluster on real machines: azsim as Azure,
// with its ARM deployments, machines that boot what the templates' customData says,
// the lab's k3s, and ortet as an operator runs it. After each command the Nodes are
// those of the instances.
//
// It needs root on Debian. Run it as
//
//	make elastic SHORT=1   # up, scale, down, up: what CI runs
//	make elastic           # every command, an eviction, and the capture of an agent
//	make elastic ELASTIC=capture     # that alone
//	make elastic ELASTIC=tailscale   # a tailnet of Tailscale's own programs; OUTAGE=1h
//	make elastic ELASTIC=live        # LIVE=publish and LIVE=full of make live
package elastic

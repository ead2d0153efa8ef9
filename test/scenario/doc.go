// Package scenario is one story of an operator, a pool and a world that goes
// wrong, as data: what there is at the start, what is asked, and what happens at
// which request. It is pure: scenarios are parsed, printed, made from a seed and
// shrunk here, and played by package play.
//
// # Text
//
// A scenario is lines of words. The first word says what the line is about;
// what follows are settings, key=value, in any order, each with a default, and
// those at their default are not printed. A line that begins with # is a
// comment: those at the top say why the scenario is kept. docs/scenarios.md
// lists the settings and happenings.
//
//	# The answer to the power-off is lost, and the process dies.
//	seed 4711
//	pool instances=5 versions=2 extensions=billing,cse
//	donor pods=3 budgeted=1
//	capture history=2
//	at azure "POST virtualMachineScaleSets/pool1/virtualMachines/0/poweroff" 1 dropAfter
//	at kube "PATCH nodes/pool1000000" 2 error 500
//	at kube "PATCH nodes/pool1000000" 3 killAfter
//	expect exit=0
//
// # What happens, and when
//
// A happening is bound to a request: to the n-th, from 1, of those that an Ortet
// process sends under one name. Names leave out what is the same everywhere:
// "METHOD type/name…" in Azure (operations that are polled have the name of the
// request that began them, "GET operation of PUT snapshots/s"), "METHOD
// namespace/resource/name" in Kubernetes. All requests of all processes count
// together. So a happening means the same however the requests of parallel steps
// interleave, and a happening whose request never comes does nothing. Names are
// taken literally. A request meets at most one fault, and its process ends at
// most once; others may do any number of things before it.
//
// # Chance
//
// A generated scenario may also hold chance: at every request, the seed, the
// request's name and its count decide whether something happens there and what.
// Playing it gives the happenings that came of that; a scenario that lists these
// and has no chance plays the same, and is what is shrunk and kept.
package scenario

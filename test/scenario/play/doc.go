// Package play plays a scenario: the real engine with the real SDK on azsim and
// the real client-go on kubesim, in one process and in virtual time, while
// what the scenario says goes wrong; and checks what has to hold whatever does.
//
// # The world
//
// A world is an Azure (azsim.Server), a Kubernetes (kubesim.Server), and what
// joins them: computers whose disks know what was done to them (disks.go), and
// the kubelets and controllers that make nodes and pods of them (nodes.go).
// Some worlds have files on their disks (content.go, firstboot.go), on which the
// pods run the agent's own code (agentpod.go); in others it is made up.
// Others act on it by their own hand (others.go).
//
// # Processes
//
// A process (process.go) is an engine.Engine as ortet makes it, whose requests
// go through a wire (wire.go). The wire names and counts each request, lets the
// network's latency pass, and asks the scenario what happens there: to the
// request, to the process, or to the world. A process that dies is cut off: its
// requests are never answered again, so that whatever it does after has no
// effect, and once its Lease has run out it ends by itself.
//
// The operator (operator.go) starts a process for what is asked, and the same
// again after one that died or was interrupted, until it ends in a way that the
// documentation calls an end. From the fourth failure on nothing more goes
// wrong, and the work has to come to its end.
//
// # What has to hold
//
// check.go says it, invariant by invariant: some at every request, some whenever
// a process ends, some when all is over.
//
// # The same at every run
//
// All that a seed decides is keyed by what it is about. Every request takes a
// latency that is a hash of the seed, its name and when it is sent, and every
// step begins and ends with one of its own, so that no two things happen in the same virtual
// instant unless one caused the other; what the Go scheduler decides then shows
// nowhere. The trace lists requests by virtual time.
package play

// Package events watches Azure's scheduled events for this machine and has the node
// leave before them: taint, cordon, drain within the time that is left, out of load
// balancers first, and only then is the event acknowledged.
//
// One poller asks once a second, as the metadata service allows; a document whose
// incarnation has not changed is not looked at again. Events reach a whole placement
// group, so only those that name this machine count, by its name in Azure and not by
// its host name.
//
// # How it is built
//
// Decide is the decision, and pure: the known State, the document and the time yield the
// next Action and the Notices to publish. Record merges an action's Outcome. An Action
// stays the next one until its outcome is recorded, so an interrupted daemon resumes by
// deciding again. Run is the shell: it polls, writes the State to disk before it acts, and
// runs one Action at a time. testdata has scenarios with the decisions of each.
//
// Draining is the admission server's, and where that does not seem to be at it the
// node's own (kubernetes, with the kubelet's credentials); both may work at once. What
// was changed at the Node is said by an annotation there, as the server does, so that
// only that is undone, by whichever of the two.
//
// Times of events are Azure's clock, which the daemon keeps by the Date of answers
// and the monotonic clock. Facts: Microsoft's "Azure Metadata Service: Scheduled
// Events for Linux VMs"; Kubernetes' Node authorizer and NodeRestriction, which a
// test asks of a real API server.
package events

// Package events watches Azure's scheduled events for this machine and has the node
// leave before them: taint, cordon, drain within the time that is left, out of load
// balancers first, and only then is the event acknowledged.
//
// One poller asks once a second, as the metadata service allows; a document whose
// incarnation has not changed is not looked at again. Events reach a whole placement
// group, so only those that name this machine count, by its name in Azure and not by
// its host name. What was begun is written down before it is done, so that a restart
// in the middle goes on.
//
// Decide is the decision, and pure: what is known, what the document says and the
// time give what to do next. Facts: Microsoft's "Azure Metadata Service: Scheduled
// Events for Linux VMs".
package events

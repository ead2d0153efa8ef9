// Package lifecycle makes a cluster, changes, backs up, stops, shows and deletes it.
//
// Azure does the work: Up renders the templates, deploys them in order and watches. A
// deployment's fixed name is the lock, so a second Up follows the first, and Up again
// after an interruption or a failure goes on. Nothing is remembered between commands:
// what exists is read from Azure.
//
// The server's state is a disk that outlives its VM, so replacing the server, Down and Up,
// a backup and its restore are things that ARM does. The VM is left out of the template
// once it exists: Up writes its settings to its userData, which the machine applies while
// it runs, and changes size and power. What a call may leave unfinished is a tag: a restore
// of the storage group, agents to renew of the state disk.
package lifecycle

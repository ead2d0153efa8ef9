// Package lifecycle makes a cluster, shows it and deletes it, by two ARM deployments.
//
// Azure does the work: Up renders the templates, deploys them in order and watches. A
// deployment's fixed name is the lock, so a second Up follows the first, and Up again
// after an interruption or a failure goes on. Nothing is remembered between commands:
// what exists is read from Azure.
package lifecycle

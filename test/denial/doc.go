// Package denial proves the documented permissions: with exactly the Azure
// actions and RBAC rules of docs/reference/azure-permissions.md and
// docs/reference/kubernetes-permissions.md everything works, each of them is needed, and
// with any one removed preflight refuses and says which, before anything has
// changed but the pool lock. It is all tests: the real capture and rollback, the
// real SDK adapter on azsim and the real client-go adapter on kubesim, in one
// process and virtual time.
package denial

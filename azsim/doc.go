// Package azsim is a simulated Azure for tests of what uses Azure's compute: one
// http.Handler that answers as Azure Resource Manager, log-in and the metadata service do,
// and whose zero value works.
//
// Its API is not stable before Ortet's version 1.0: names and behaviour may change with
// any release.
//
// # Use
//
//	go get github.com/ortet/ortet/azsim
//
// Under the Azure SDK for Go, Server.ClientOptions and Server.Credential lead clients to a
// server in the same process: see the example of Server. Server.Create makes what there is
// at the start from a Spec, which ParseSpec reads from YAML. Behind TLS the same server
// serves real clients, as cmd/azsim does; the Azure CLI and cluster-autoscaler's Azure
// client accept it.
//
// What always holds in Azure always holds here. What happens sometimes is a Fault:
// throttling, errors, lost answers, operations that hang, fail or succeed in name only, no
// capacity, stale reads. Server.AddFault takes rules, see its example; WithFault puts one
// fault into the context of one request. View looks at what is stored without a request,
// and OnRequest observes requests.
//
// Operations take Azure's time by Profile, divided by Speed. Inside testing/synctest they
// take none: the server uses package time plainly, every operation is one goroutine with
// one timer, nothing but a deployment polls, and Close ends them all. What it makes up
// (ids, durations, chance) comes from Server.Seed and from what it is for (chance.go), so
// that the same requests get the same answers, in whatever order goroutines run that wake
// at one instant. What depends on the order of two requests at one instant, or of a request
// and the end of an operation at one instant, is the caller's to order: give each request a
// latency of its own.
//
// # What is simulated
//
//   - Resource Manager: API versions, long-running operations, ETags, pages, tags, resource
//     groups, registration of providers, roles with their permissions, deployments of
//     templates with validation and what-if
//   - Microsoft.Compute: scale sets (Uniform and Flexible) with their instances, models,
//     upgrades and extensions; virtual machines, disks, snapshots, galleries, managed images, availability sets,
//     proximity placement groups, SSH public keys
//   - the metadata service of each instance: metadata, tokens, attested documents,
//     scheduled events (package metadata)
//   - networks, interfaces, public addresses, security groups, NAT gateways, storage
//     accounts with shares, user-assigned identities and autoscale settings, most of them
//     as stored resources whose rules are checked
//
// # What is not
//
//   - It never met the real Azure. It was built from public documentation, the SDK's models,
//     and what users reported; where none was found, codes, messages and orders are
//     inferred. Ortet's pages azsim.md and not-yet-met.md list that. test/recorded counts
//     how many recorded answers of Azure it gives, too.
//   - Without a Substrate nothing runs: disks have no bytes, and instances are ready once
//     their time has passed. Packages hollow and machine are substrates.
//   - No data plane: no blobs, no packets but for those of a Substrate, no balanced load.
//   - No Microsoft Graph, locks, policies, quotas but for vCPUs, moves, cost, metrics or
//     activity log.
//   - Instance repairs, automatic OS upgrades and autoscale settings are stored, and do
//     nothing.
//   - Resource Manager throttles by a Fault alone; the metadata service has Azure's limit.
//
// # What stands behind
//
// The server keeps resources and their states; a Substrate, if it has one, keeps bytes and
// runs computers. What a computer finds at 169.254.169.254 is Computer.IMDS, also to be had
// by Server.IMDS. Package metadata answers there; the server reports to it the instance, its
// tokens, and the scheduled events of its placement group (metadata_event_board.go), which
// Schedule and others post.
//
// # Files
//
// A file's name begins with the part of Azure that it simulates:
//
//   - compute_: disks, snapshots, galleries, managed images, scale sets with their instances and
//     extensions, virtual machines, sizes
//   - network_: virtual networks, interfaces, addresses and load balancers
//   - storage_: storage accounts and their shares
//   - identity_: roles, role assignments and managed identities
//   - resources_: resource groups, tags, deployments of templates
//   - insights_: autoscale settings
//   - metadata_: what binds package metadata to instances: access, limits and faults,
//     attested documents, and the scheduled events of placement groups
//
// Files without such a prefix are the core that all of them share: requests (call.go),
// resources (resource.go; stored.go for those that are mostly stored), operations, faults,
// log-in and permissions (login.go, principal.go, authorize.go), the spec.
//
// # How a request goes
//
// ServeHTTP answers discovery and log-in (login.go), then takes an ARM request
// through parsing (path.go), routing and the common checks (call.go: api-version,
// token, subscription, version, permission, group, registration), and a fault if
// it meets one (fault.go), to the handler of its resource type. Handlers run
// under the server's one lock: they must neither wait nor call the Substrate (but
// for an Addresser, which answers at once). What takes time goes into an operation
// (operation.go), whose run is called without the lock and whose done is called
// under it; what must ask the Substrate at once goes into reply.later. Replies are
// encoded under the lock, so they may point at stored models.
//
// # Deployments
//
// Package deployments runs templates; a deployer is its way back into ServeHTTP, as
// the principal that deploys, marked in the request's context. Its waits for
// resources are the only polling. A deployment is validated by PUTs that are only
// checked (call.check): they end after the common checks, or before the store for a
// type with preflight, whose put ends in write or has such an end of its own.
//
// # How to add a resource type
//
// One that is mostly stored is a storedType with storedRules (stored.go), listed in
// network_stored.go or the like. For another return a resourceType from resourceTypes
// (types.go), or from scaleSetTypes for what belongs to scale sets:
//
//	{
//		name:     "Microsoft.Compute/disks", // the spelling of ARM; routing ignores case
//		versions: diskVersions,
//		global:   true,  // can be listed in the whole subscription
//		put:      func(c *call) (*reply, error) { return put(c, diskHooks) },
//		patch:    func(c *call) (*reply, error) { return patch(c, diskHooks) },
//		remove:   func(c *call) (*reply, error) { return c.remove(check, work) },
//		// get and list have defaults: the stored body, through render.
//		render:   func(c *call, e *entry) any { … },   // hide, expand ($expand: c.expands)
//		actions:  map[string]handler{"begingetaccess": …}, // POST id/beginGetAccess
//		views:    map[string]handler{"instanceview": …},   // GET id/instanceView
//	}
//
// put and patch are generic over the armcompute model: they decode strictly,
// merge, refuse where an operation runs (409) or a parent is missing, check the
// location, set id, name, type and provisioningState (Creating, Updating, then
// Succeeded or Failed), store and answer with the headers of the operation. A
// type adds hooks: check(c, old, next) to validate and fill in, and work(c, e,
// old, next) to say how long it takes (c.duration("disk.create"), by Profile)
// and what it does. Handlers that fit no hook use the parts: c.need, c.tree,
// decode, fromTree, mergePatch, c.busy, c.begin, accepted, ok, c.page, c.pageOf,
// c.remove, s.find, s.findID, load, s.insert, s.delete, s.children, s.ofType.
// Refusals are *armError (refuse, badRequest, badParameter, notFound).
//
// Nested types ("…/virtualMachineScaleSets/virtualMachines") are stored under
// their own id; their parent must be stored, and they go with it (see drop).
// entry.extra holds what a type keeps beside the model. s.preempt ends a running
// operation as Canceled; with resourceType.preempts a newer write does so itself,
// and a task (operation.go) is work that goes on nevertheless. c.authorizeLinked checks permission on a resource that
// the body names. s.running counts goroutines: begin one only through c.begin or
// with running.Add(1), and end it when s.ctx is done.
package azsim

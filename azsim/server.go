package azsim

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/azsim/metadata"
)

// Defaults of a zero Server.
const (
	DefaultTenant        = "72f988bf-0000-4000-8000-000000000001"
	DefaultSubscription  = "5ca1ab1e-0000-4000-8000-000000000002"
	DefaultResourceGroup = "azsim"
	DefaultLocation      = "westeurope"
	DefaultClientID      = "c11e9700-0000-4000-8000-000000000003"
	DefaultClientSecret  = "azsim-secret" // #nosec G101 -- of a simulation in this process
)

// A Location is one Azure region.
type Location struct {
	Name        string   `json:"name"`
	DisplayName string   `json:"displayName,omitempty"`
	Zones       []string `json:"zones,omitempty"` // none: ZRS is refused too
}

// A Server is a simulated Azure. It is an http.Handler; its zero value works
// and has DefaultSubscription with DefaultResourceGroup in it. Fields are set
// before the first request, except where they say otherwise. Close it in the
// end: it ends every goroutine that it began.
type Server struct {
	Tenant        string // id; "" means DefaultTenant
	Subscription  string // id; "" means DefaultSubscription
	ResourceGroup string // made at the start; "" means DefaultResourceGroup
	Location      string // of the resource group; "" means the first of Locations
	Locations     []Location
	Principals    []Principal // none: DefaultClientID is Owner of the subscription

	// PublicAddresses is the range of public addresses; invalid means 20.50.0.0/16.
	PublicAddresses netip.Prefix
	// TakenStorageAccounts are names of storage accounts that others in Azure have.
	TakenStorageAccounts []string
	// RestrictedSizes are VM sizes that the subscription may not use, in any region.
	RestrictedSizes []string
	// RetiredOffers accepts what Azure has retired: Basic public addresses.
	RetiredOffers bool
	// ImageVersions is the version that "latest" of a marketplace image stands for, by
	// "publisher:offer:sku" in lower case. Others have one version for all.
	ImageVersions map[string]string
	// Quota limits the vCPUs of instances in each region, by the names that
	// locations/{location}/usages has: "cores" for all but Spot ones, "lowPriorityCores"
	// for Spot ones, and the families of sizes ("standardDSv5Family"). What it does not
	// name is 100000.
	Quota map[string]int
	// Budgets refuses requests about one virtual machine, scale set or instance, and about
	// operations on it, with 429 where they come faster than Azure Compute's limits of a
	// resource. Speed multiplies the limits.
	Budgets bool
	// UserDataMakesCustom lets a change of an instance's own userData make its model
	// its own: latestModelApplied is false from then on. It is not documented.
	UserDataMakesCustom bool
	// OwnKeys denies what has no disk encryption set, as RequireOwnKeys does.
	OwnKeys bool

	// Unregistered lists resource providers that start unregistered.
	Unregistered []string

	Substrate Substrate     // nil: nothing runs
	Profile   Profile       // durations that differ from DefaultProfile
	Speed     float64       // divides durations and Retry-After; 0 means 1
	Seed      uint64        // of every id and of chance
	PageSize  int           // of lists; 0 means 50
	TokenLife time.Duration // of tokens; 0 means an hour. Not divided by Speed.
	Log       *slog.Logger  // nil discards

	// Attestor signs attested documents; nil means one of the server's own.
	Attestor *metadata.Attestor
	// AttestationChain embeds the signer's issuer in attested documents. Azure's
	// hold the signer's certificate alone.
	AttestationChain bool

	// SigningKey signs tokens; nil means one that anybody can know, which is
	// right in a test and wrong on a network.
	SigningKey []byte
	// AdminToken opens the endpoints under /azsim/; "" opens them to requests
	// that come from this computer only.
	AdminToken string
	// Base is the URL at which clients reach the server; "" takes it from each
	// request.
	Base string
	// Faults that are on from the start.
	Faults []Fault
	// KeepAnswers keeps the last answer to every GET from the start, so that any
	// later one can be stale; else they are kept once a fault could want them.
	KeepAnswers bool
	// OnRequest is told of every request after its answer; it is called without
	// a lock held, on the request's goroutine.
	OnRequest func(Request)

	once    sync.Once
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	publishing sync.Mutex // locked while the Substrate is given publications
	published  map[netip.Addr]publication

	attesting sync.Mutex // guards Attestor and attestors, while keys are made
	attestors map[string]*metadata.Attestor

	mu         sync.Mutex        // guards what follows, never held over a wait
	drawn      map[string]uint32 // how often each stream of chance was begun
	tokens     map[string]claims // of tokens that were found right
	skus       map[string][]any  // encoded, by region
	stale      map[string]*reply
	profile    Profile
	types      map[string]*resourceType
	providers  map[string]*provider
	entries    map[string]*entry
	order      []*entry
	operations map[string]*operation
	buckets    map[string]bucket // by budget and resource
	faults     []*Fault
	principals []*principal
	requests   []Request
	count      int
	instant    bool // durations are nothing
	born       time.Time
	roles      []*role
	scaleSets  scaleSetState
	blobs      map[string]int32 // sizes in GiB of page blobs that machines had as disks, by address in lower case
}

// init prepares the server at first use.
func (s *Server) init() {
	s.once.Do(func() {
		def := func(field *string, value string) {
			*field = cmp.Or(*field, value)
		}
		def(&s.Tenant, DefaultTenant)
		def(&s.Subscription, DefaultSubscription)
		def(&s.ResourceGroup, DefaultResourceGroup)
		if len(s.Locations) == 0 {
			s.Locations = []Location{
				{DefaultLocation, "West Europe", []string{"1", "2", "3"}},
				{"northeurope", "North Europe", []string{"1", "2", "3"}},
				{"westcentralus", "West Central US", nil},
			}
		}
		s.Locations = namedRegions(s.Locations)
		def(&s.Location, s.Locations[0].Name)
		if s.PageSize <= 0 {
			s.PageSize = 50
		}
		if s.TokenLife <= 0 {
			s.TokenLife = time.Hour
		}
		s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
		if len(s.SigningKey) == 0 {
			s.SigningKey = []byte("azsim")
		}
		s.ctx, s.stop = context.WithCancel(context.Background())
		s.drawn, s.tokens = map[string]uint32{}, map[string]claims{}
		s.skus = map[string][]any{}
		s.profile = DefaultProfile()
		for k, v := range s.Profile {
			s.profile[k] = v
		}
		s.born = time.Now()
		s.entries = map[string]*entry{}
		s.operations = map[string]*operation{}
		s.buckets = map[string]bucket{}
		s.types = map[string]*resourceType{}
		for _, list := range [][]*resourceType{resourceTypes(), scaleSetTypes(), storedTypes()} {
			for _, t := range list {
				s.types[strings.ToLower(t.name)] = t
			}
		}
		s.providers = newProviders(s.types, s.Unregistered)
		s.initPrincipals()
		for _, f := range s.Faults {
			if err := s.addFault(f); err != nil {
				s.Log.Error("fault left out", "error", err)
			}
		}
		s.putGroup(s.ResourceGroup, s.Location, nil)
	})
}

// Close ends every operation as it is and waits for the server's goroutines.
func (s *Server) Close() {
	s.init()
	s.stop()
	s.running.Wait()
}

// Instant makes operations that begin from now on take no time, or the time of
// their Profile again: so that a test sets its world up at once. A Substrate
// takes its own time all the same.
func (s *Server) Instant(on bool) {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instant = on
}

// location finds a region by either of its names, as clients may spell it.
func (s *Server) location(name string) (Location, bool) {
	norm := normLocation(name)
	for _, l := range s.Locations {
		if normLocation(l.Name) == norm {
			return l, true
		}
	}
	return Location{}, false
}

func normLocation(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, " ", ""))
}

// locationOf is the region of an entry, or the server's own.
func (s *Server) locationOf(e *entry) string {
	if e != nil {
		if l := getField(e.body, "Location"); l != "" {
			return normLocation(l)
		}
	}
	return s.Location
}

var _ http.Handler = (*Server)(nil)

// locked runs do under the lock.
func (s *Server) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

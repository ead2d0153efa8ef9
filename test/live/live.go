package live

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/azure/azuretest"
	"github.com/ortet/ortet/internal/azure/credential"
	"github.com/ortet/ortet/internal/fleet"
)

// Exit codes of Run and Clean.
const (
	ExitDone    = 0
	ExitFailed  = 1 // also where nothing was run
	ExitDiffers = 2 // Azure's answers are not those expected
)

// Program is what the commands stand on.
type Program struct {
	Getenv  func(string) string
	In      io.Reader
	Out     io.Writer
	Load    func(context.Context) (credential.Credentials, error)
	Now     func() time.Time
	Suffix  string // of the group's name where LIVE_NAME gives none: 4 random characters
	Version string
	// Az runs the Azure CLI, which has to be logged in, for runs on a cluster.
	Az func(ctx context.Context, args ...string) error
}

// Credentials finds credentials as every command does, with LIVE_AZURE_CONFIG for --azure-config.
func Credentials(getenv func(string) string) func(context.Context) (credential.Credentials, error) {
	return func(ctx context.Context) (credential.Credentials, error) {
		return credential.Load(ctx, credential.Config{File: getenv("LIVE_AZURE_CONFIG"), Getenv: getenv})
	}
}

const (
	// limit is how long a run may take before it is ended and cleaned up.
	limit        = 9 * time.Hour
	cleanUpLimit = time.Hour
)

// settings are what the environment asks for.
type settings struct {
	what, check, name, region, owner, folder string
	yes                                      bool
	people                                   []string // whose computer it is, beside the owner
	// Of runs on a cluster: its name, the file of k3s, the folder of the other programs, and
	// from where it is reached.
	cluster, k3s, files, own string
}

// instances are how many there are at a time, at most, of each run.
var instances = map[string]int{
	"contract": 4, // of a check's pool
	"publish":  3, // a server, donor and workbench
	"full":     5, // a clone and an added agent besides
}

func (s settings) onCluster() bool { return s.what != "contract" }

// longest is how long what a run makes is billed at most: a cluster is deleted by ortet
// cluster, and each group after that.
func (s settings) longest() time.Duration {
	if s.onCluster() {
		return limit + 3*cleanUpLimit
	}
	return limit + cleanUpLimit
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,58}[a-z0-9]$`)

func (p Program) settings() (settings, error) {
	s := settings{
		what: cmp.Or(p.Getenv("LIVE"), "contract"), check: p.Getenv("LIVE_CHECK"), region: cmp.Or(p.Getenv("LIVE_REGION"), "westeurope"),
		name:  cmp.Or(p.Getenv("LIVE_NAME"), "ortet-live-"+p.Now().UTC().Format("20060102-1504")+"-"+p.Suffix),
		owner: cmp.Or(p.Getenv("LIVE_OWNER"), p.Getenv("USER"), "unknown"), folder: cmp.Or(p.Getenv("LIVE_OUT"), "bin/live"),
		yes: p.Getenv("LIVE_YES") == "1", people: []string{p.Getenv("USER"), filepath.Base(p.Getenv("HOME")), p.Getenv("HOSTNAME")},
		cluster: "live-" + p.Suffix, k3s: p.Getenv("LIVE_K3S"),
		files: cmp.Or(p.Getenv("LIVE_FILES"), "bin/live-files"), own: p.Getenv("LIVE_OWN_ADDRESS"),
	}
	if instances[s.what] == 0 {
		return s, fmt.Errorf("LIVE=%s: unknown run; want contract, publish or full", s.what)
	}
	if s.onCluster() && s.check != "" {
		return s, fmt.Errorf("LIVE_CHECK=%s: LIVE=contract alone has checks to choose from; leave it empty", s.check)
	}
	if len(s.checks()) == 0 {
		return s, fmt.Errorf("LIVE_CHECK=%s: no such check; want one of %s", s.check, strings.Join(names(azuretest.Checks()), ", "))
	}
	if !validName.MatchString(s.name) {
		return s, fmt.Errorf("LIVE_NAME=%s: want 3 to 60 lower-case letters, digits and hyphens", s.name)
	}
	return s, nil
}

// checks are those that run: all, or the one of LIVE_CHECK.
func (s settings) checks() []azuretest.Check {
	return slices.DeleteFunc(azuretest.Checks(), func(c azuretest.Check) bool { return s.check != "" && c.Name != s.check })
}

func names(checks []azuretest.Check) (all []string) {
	for _, c := range checks {
		all = append(all, c.Name)
	}
	return all
}

// A session is a subscription that was logged in to.
type session struct {
	settings
	who            credential.Credentials
	cloud, another azure.Cloud
	resources      azure.Resources
	recorder       *recorder
	rig            *rig // nil without a cluster
	out            io.Writer
	now            func() time.Time
}

func (s *session) say(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format+"\n", args...) }

func (s *session) group(name string) fleet.ResourceID {
	return fleet.ResourceID("/subscriptions/" + s.who.Subscription + "/resourceGroups/" + name)
}

// open finds the credentials, and logs in.
func (p Program) open(ctx context.Context, set settings) (*session, error) {
	who, err := p.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w (LIVE_AZURE_CONFIG=FILE is --azure-config here)", err)
	}
	if who.Subscription == "" {
		return nil, errors.New("the credentials name no subscription; set AZURE_SUBSCRIPTION_ID")
	}
	s := &session{settings: set, who: who, out: p.Out, now: p.Now, recorder: &recorder{next: who.Transport}}
	options := arm.Options{Cloud: who.Cloud, Credential: who.TokenCredential, Transport: s.recorder, Version: p.Version}
	for _, cloud := range []*azure.Cloud{&s.cloud, &s.another} {
		c, err := arm.New(options)
		if err != nil {
			return nil, err
		}
		*cloud = azure.Retry(azure.Limit(c, azure.Limits{}), azure.RetryPolicy{})
	}
	resources, err := arm.NewResources(options)
	if err != nil {
		return nil, err
	}
	s.resources = resources
	if err := resources.LogIn(ctx); err != nil {
		return nil, fmt.Errorf("credentials of %s: %w", who.Source, err)
	}
	return s, nil
}

// Run makes a run until its end or that of ctx, and returns the exit code.
func (p Program) Run(ctx context.Context) int {
	notRun := func(err error) int {
		_, _ = fmt.Fprintln(p.Out, "NOT RUN:", err)
		return ExitFailed
	}
	set, err := p.settings()
	if err == nil && set.onCluster() && (set.k3s == "" || set.own == "") {
		err = errors.New("LIVE_K3S and LIVE_OWN_ADDRESS are needed: the file of a released k3s for amd64, " +
			"and the address or range from which this computer reaches the cluster")
	}
	if err != nil {
		return notRun(err)
	}
	s, err := p.open(ctx, set)
	if err != nil {
		return notRun(err)
	}
	prices, err := readPrices()
	if err != nil {
		return notRun(err)
	}
	s.plan(prices)
	if !s.yes && !confirmed(ctx, p.In) {
		return notRun(errors.New("not confirmed; answer yes, or set LIVE_YES=1"))
	}
	err = s.preflight(ctx, prices)
	if err == nil {
		err = s.writable()
	}
	if err != nil {
		return notRun(err)
	}
	if s.onCluster() {
		done, err := s.prepare(ctx, p)
		defer done()
		if err != nil {
			return notRun(err)
		}
	}
	begin := s.now()
	if err := s.claimGroups(ctx, begin.Add(limit)); err != nil {
		return notRun(err)
	}
	within, end := context.WithTimeout(ctx, limit)
	defer end()
	var results []*trial
	if s.onCluster() {
		results = s.play(within)
	} else {
		results = s.contract(within)
	}
	groups, _ := s.groups()
	left := s.removeGroups(context.WithoutCancel(ctx), s.name, groups...)
	code := s.publish(p.Version, begin, results)
	switch {
	case left != nil:
		s.say("LEFT: %v", left)
		return ExitFailed
	case within.Err() != nil:
		s.say("the run was ended before its end; nothing of it is left in Azure")
		return ExitFailed
	}
	s.say("nothing of the run is left in Azure")
	return code
}

func confirmed(ctx context.Context, in io.Reader) bool {
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- strings.TrimSpace(line)
	}()
	select {
	case line := <-answer:
		return line == "yes"
	case <-ctx.Done():
		return false
	}
}

// plan prints what a run makes and costs.
func (s *session) plan(p prices) {
	say := func(begin, format string, args ...any) { s.say("%s", wrapped(begin, fmt.Sprintf(format, args...))) }
	say("make live,", "LIVE=%s, on subscription %s by %s", s.what, s.who.Subscription, s.who.Source)
	groups, _ := s.groups()
	n, billed, priced := instances[s.what], "instances, OS disks, snapshots, image versions", "storage"
	say("  makes   ", "resource group %s in %s, with tags for owner %s and the run's end", strings.Join(groups, " and "), s.region, s.owner)
	if s.onCluster() {
		billed, priced = billed+", a state disk, file shares, a NAT gateway, two public addresses", "storage, gateway and addresses"
		say("          ", "k3s cluster %s, whose ports 22 and 6443 %s reaches: a server and %d agents at most, %s (%d vCPUs); "+
			"for each check one after the other: %s", s.cluster, s.own, n-1, p.VM.Size, n*p.VM.VCPUs, strings.Join(names(s.steps()), ", "))
	} else {
		say("          ", "a network without public addresses; for each check (%s) a Uniform and a Flexible scale set, one after the "+
			"other, of at most %d instances %s (%d vCPUs)", strings.Join(names(s.checks()), ", "), n, p.VM.Size, n*p.VM.VCPUs)
	}
	say("          ", "their disks, snapshots, galleries and image versions")
	say("  takes   ", "at most %s; everything is removed then, and after Ctrl-C", limit)
	say("  billed  ", "%s", billed)
	say("  costs   ", "at most %.2f USD: %d instances x %s x %.3f USD (list price of %s, the dearest region) and %d GiB of %s; sources: "+
		"test/live/prices.json", p.limit(n, s.onCluster(), s.longest()), n, s.longest(), p.VM.USDPerHour, p.VM.AsOf, storageGiB, priced)
	if !s.yes {
		s.say("type yes to begin")
	}
}

// wrapped is a text after begin, in lines of at most 80 columns where no word is longer.
func wrapped(begin, text string) string {
	var b strings.Builder
	line := begin
	for word := range strings.FieldsSeq(text) {
		if utf8.RuneCountInString(line+" "+word) > 80 {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", len(begin))
		}
		line += " " + word
	}
	return b.String() + line
}

// preflight looks for reasons that would end the run in its middle.
func (s *session) preflight(ctx context.Context, p prices) error {
	size, err := s.cloud.Size(ctx, s.who.Subscription, s.region, p.VM.Size)
	if err != nil {
		return fmt.Errorf("%w; choose another region by LIVE_REGION", err)
	}
	zones := s.onCluster() || slices.Contains(size.Zones, "1") && slices.Contains(size.Zones, "2")
	if size.Restricted != "" || !zones {
		return fmt.Errorf("%s in %s: zones %v, restriction %q; choose a region with zones 1 and 2 by LIVE_REGION", p.VM.Size, s.region,
			size.Zones, size.Restricted)
	}
	usages, err := s.cloud.Usages(ctx, s.who.Subscription, s.region)
	if err != nil {
		return err
	}
	need := int64(instances[s.what] * p.VM.VCPUs)
	for _, quota := range []string{"cores", strings.ToLower(size.Family)} {
		if u, ok := usages[quota]; ok && u.Limit-u.Used < need {
			return fmt.Errorf("quota %s in %s: %d of %d vCPUs used, %d needed; raise it, or choose another region by LIVE_REGION", quota,
				s.region, u.Used, u.Limit, need)
		}
	}
	return nil
}

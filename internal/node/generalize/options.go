package generalize

import (
	"cmp"
	"crypto/ecdh"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// Bootstrap says how clones are going to join.
type Bootstrap string

const (
	// Keep means: the model's customData and extensions run on each clone, as they
	// ran on the donor.
	Keep Bootstrap = "keep"
	// Baked means: clones join by what is on the disk, without customData.
	Baked Bootstrap = "baked"
)

// Options is what the caller knows of the capture.
type Options struct {
	Capture               string       // the capture's name
	Donor                 string       // the donor's node name
	DonorAddresses        []netip.Addr // the donor's addresses, for the scan and /etc/hosts
	At                    time.Time    // when the capture was begun
	AcceptPoolCredentials bool
	AcceptSecrets         []string // paths of other secrets that may stay: files, or folders that end in /
	RemoveSecrets         bool     // delete files with other secrets from the copy, where that is safe
	ScanImages            bool     // search image layers for secrets by form too
	Bootstrap             Bootstrap
	SealTo                *ecdh.PublicKey  // X25519; nil: nothing can be saved
	DryRun                bool             // look, count and scan; change nothing
	Flush                 bool             // the tree is a running node's root: write out what it has in memory; change nothing
	Online                time.Time        // when the disk was flushed of which the tree is a copy, by the donor's clock; zero: the donor was stopped
	Now                   func() time.Time // for Flush
	Tune                  []string         // names of wire.Tunings; what an earlier capture added is taken away in any case
	Inspect               bool             // the tree is a running node's root: scan it for what its copy would be refused for; change nothing
	Limits                Limits
}

// Limits bound the scan. The zero value takes the defaults. Beyond them an
// inspection ends as it is, and any other scan has a finding.
type Limits struct {
	Bytes    int64         // read in total: 64 GiB, of a running node 2 GiB
	Findings int           // kept in the report, 200
	Files    int           // opened by an inspection, 200,000
	Time     time.Duration // of an inspection, 45 s
}

const (
	defaultScanBytes    = 64 << 30
	defaultFindings     = 200
	defaultInspectBytes = 2 << 30
	defaultInspectFiles = 200_000
	defaultInspectTime  = 45 * time.Second
)

var (
	captureName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)
	nodeName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

// Validate says everything that is wrong with the options at once.
func (o Options) Validate() error {
	var problems []string
	if !captureName.MatchString(o.Capture) {
		problems = append(problems, fmt.Sprintf("capture name %q: want letters, digits, '.', '_', '-', at most 253", o.Capture))
	}
	if !nodeName.MatchString(o.Donor) {
		problems = append(problems, fmt.Sprintf("donor %q: want a Kubernetes node name", o.Donor))
	}
	if o.At.IsZero() {
		problems = append(problems, "the time at which the capture was begun is missing")
	}
	if o.Bootstrap != Keep && o.Bootstrap != Baked {
		problems = append(problems, fmt.Sprintf("bootstrap %q: want keep or baked", o.Bootstrap))
	}
	if len(o.AcceptSecrets) > wire.MaxAcceptedSecrets {
		problems = append(problems, fmt.Sprintf("%d accepted secrets, want at most %d: name folders", len(o.AcceptSecrets), wire.MaxAcceptedSecrets))
	}
	for _, at := range o.AcceptSecrets {
		if err := wire.CheckAcceptedSecret(at); err != nil {
			problems = append(problems, "accepted secret "+err.Error())
		}
	}
	_, err := wire.ParseTunings(o.Tune)
	if err = cmp.Or(err, wire.CheckTunings(o.Tune, o.Bootstrap == Baked)); err != nil {
		problems = append(problems, "--tune: "+err.Error())
	}
	if o.Flush && o.Now == nil {
		problems = append(problems, "a flush needs a clock")
	}
	if o.SealTo != nil && o.SealTo.Curve() != ecdh.X25519() {
		problems = append(problems, "the key to seal to is not an X25519 key")
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

func (l Limits) withDefaults(inspect bool) Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultScanBytes
		if inspect {
			l.Bytes = defaultInspectBytes
		}
	}
	if l.Files <= 0 {
		l.Files = defaultInspectFiles
	}
	if l.Time <= 0 {
		l.Time = defaultInspectTime
	}
	if l.Findings <= 0 {
		l.Findings = defaultFindings
	}
	return l
}

package generalize

import (
	"crypto/ecdh"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"
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
	Bootstrap             Bootstrap
	SealTo                *ecdh.PublicKey // X25519; nil: nothing can be saved
	DryRun                bool            // look, count and scan; change nothing
	Inspect               bool            // only look whether the disk would be refused; change nothing
	Limits                Limits
}

// Limits bound the scan. The zero value takes the defaults.
type Limits struct {
	Bytes    int64 // read in total, 64 GiB; what lies beyond is a finding
	Findings int   // kept in the report, 200
}

const (
	defaultScanBytes = 64 << 30
	defaultFindings  = 200
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
	if o.SealTo != nil && o.SealTo.Curve() != ecdh.X25519() {
		problems = append(problems, "the key to seal to is not an X25519 key")
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultScanBytes
	}
	if l.Findings <= 0 {
		l.Findings = defaultFindings
	}
	return l
}

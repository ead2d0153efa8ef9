package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
)

const (
	// instanceVersion is the oldest API version with all needed fields, so that every cloud
	// has it.
	instanceVersion = "2021-02-01"
	instanceTimeout = 5 * time.Second
	// attestedTimeout is longer: the document is signed when it is asked for.
	attestedTimeout = 15 * time.Second
	maxDocument     = 16 << 10
)

// attestedVersions are tried in this order: clouds differ in what they know.
func attestedVersions() []string { return []string{"2025-04-07", "2023-11-15", "2021-02-01"} }

// Machine is this machine's identity by Azure.
type Machine struct {
	ResourceID string // ARM id of the instance
	VMID       string // UUID in lower case
	Name       string // as scheduled events name it: "pool1_3"
	HostName   string // computer name, "" where Azure returns none
}

var vmIDShape = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Words of the metadata service that go into requests and files.
var (
	resourceIDShape = regexp.MustCompile(`^/(?i:subscriptions)(/[\p{L}\p{N}._()-]+)+$`)
	hostNameShape   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	base64Shape     = regexp.MustCompile(`^[A-Za-z0-9+/]+={0,2}$`)
)

// errNotNow is of an answer that may change a second later: the metadata service takes five
// requests a second of the whole machine, is updated, or is unavailable for a while.
// Source: Microsoft's "Azure Instance Metadata Service", "Errors and debugging", "Rate
// limiting".
var errNotNow = errors.New("not now")

func notNow(a bootstrap.Answer) error {
	if a.Code == 410 || a.Code == 429 || a.Code >= 500 {
		return fmt.Errorf("%w: the metadata service answered %s", errNotNow, a.Status)
	}
	return fmt.Errorf("the metadata service answered %s", a.Status)
}

// whoAmI asks Azure who this machine is.
func whoAmI(ctx context.Context, service string) (Machine, error) {
	a, err := bootstrap.AskMetadata(ctx, service, "/metadata/instance/compute?api-version="+instanceVersion+"&format=json", instanceTimeout)
	if err != nil {
		return Machine{}, fmt.Errorf("asking Azure who this machine is: %w", err)
	}
	if a.Code != 200 {
		return Machine{}, fmt.Errorf("asking Azure who this machine is: %w", notNow(a))
	}
	return parseMachine(a.Body)
}

// errMetadata means that the metadata service's answer is invalid.
var errMetadata = errors.New("the metadata service's answer")

// parseMachine reads the metadata service's answer.
func parseMachine(body []byte) (Machine, error) {
	var a struct {
		ResourceID string `json:"resourceId"`
		VMID       string `json:"vmId"`
		Name       string `json:"name"`
		OSProfile  struct {
			ComputerName string `json:"computerName"`
		} `json:"osProfile"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return Machine{}, fmt.Errorf("%w: %w", errMetadata, err)
	}
	m := Machine{ResourceID: a.ResourceID, VMID: strings.ToLower(a.VMID), Name: a.Name, HostName: a.OSProfile.ComputerName}
	switch {
	case len(m.ResourceID) > 1<<10 || !resourceIDShape.MatchString(m.ResourceID):
		return Machine{}, fmt.Errorf("%w: a resourceId %.80q", errMetadata, m.ResourceID)
	case !vmIDShape.MatchString(m.VMID):
		return Machine{}, fmt.Errorf("%w: a vmId %.80q", errMetadata, m.VMID)
	case m.HostName != "" && !hostNameShape.MatchString(m.HostName):
		return Machine{}, fmt.Errorf("%w: a computerName %.80q", errMetadata, m.HostName)
	}
	return m, nil
}

// attest has Azure sign a nonce, of 32 alphanumeric characters, together with this
// machine's identity.
func attest(ctx context.Context, service, nonce string) (document string, err error) {
	for i, version := range attestedVersions() {
		a, err := bootstrap.AskMetadata(ctx, service, "/metadata/attested/document?api-version="+version+"&nonce="+nonce, attestedTimeout)
		if err != nil {
			return "", fmt.Errorf("asking Azure for an attested document: %w", err)
		}
		if a.Code == 200 {
			return parseAttested(a.Body)
		}
		// An API version that it does not know is a bad request.
		if a.Code != 400 || i == len(attestedVersions())-1 {
			return "", fmt.Errorf("asking Azure for an attested document: %w", notNow(a))
		}
	}
	return "", errMetadata // not reached: there is a version
}

// parseAttested takes the signed document out of the answer; it is the server's to
// read.
func parseAttested(body []byte) (string, error) {
	var a struct {
		Signature string `json:"signature"`
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return "", fmt.Errorf("%w: %w", errMetadata, err)
	}
	if len(a.Signature) > maxDocument || !base64Shape.MatchString(a.Signature) {
		return "", fmt.Errorf("%w: a signature of %d characters that is no base64", errMetadata, len(a.Signature))
	}
	return a.Signature, nil
}

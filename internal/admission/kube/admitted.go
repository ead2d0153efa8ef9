package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/fleet"
)

// An admitted is what is kept of a name that may be registered: who it was admitted
// for. The zero value is a Node that was there before admission was.
type admitted struct {
	VMID     string
	Pool     fleet.ResourceID
	Instance fleet.ResourceID
	At       time.Time // to the millisecond
	// Certificates are fingerprints of the client certificates that count for it
	// (counting), "LAST,BEFORE", as far as there are two; "-" where none was signed yet,
	// "" where an earlier version admitted it, which kept none.
	Certificates string
	// Newest is when the last of them was asked for, by the API server's clock, to the
	// second; the zero value where it is not known.
	Newest time.Time
}

// admittedOf begins without certificates, also for a machine that was admitted before:
// it asked since it has none, and an earlier one may lie on a disk that it had.
func admittedOf(m fleet.Member, at time.Time) admitted {
	return admitted{VMID: m.VMID, Pool: m.Pool, Instance: m.Instance, At: time.UnixMilli(at.UnixMilli()).UTC(), Certificates: noCertificate}
}

// annotationPools lists, as JSON, the pools that the entries count from 0. Pools'
// ids are long, and an object is bounded.
const annotationPools = "ortet.io/pools"

// An entry is "VMID MILLISECONDS POOL INSTANCE CERTIFICATES NEWEST", as
// "c0ff… 1790000000000 0 12 -", without the last, in seconds, where it is not known, and
// without the last two where there are no certificates; its seal follows. The instance is what follows the pool's id, "~NAME" for a virtual machine in the pool's
// resource group, or else an ARM id.
func (a admitted) entry(pools *[]string) string {
	if a.VMID == "" {
		return ""
	}
	i := slices.Index(*pools, string(a.Pool))
	if i < 0 {
		i = len(*pools)
		*pools = append(*pools, string(a.Pool))
	}
	instance := string(a.Instance)
	if rest, ok := strings.CutPrefix(instance, uniformPrefix(a.Pool)); ok {
		instance = rest
	} else if rest, ok := strings.CutPrefix(instance, flexiblePrefix(a.Pool)); ok {
		instance = "~" + rest
	}
	text := fmt.Sprintf("%s %d %d %s", a.VMID, a.At.UnixMilli(), i, instance)
	if a.Certificates != "" {
		text += " " + a.Certificates
		if !a.Newest.IsZero() {
			text += " " + strconv.FormatInt(a.Newest.Unix(), 10)
		}
	}
	return text
}

// entrySize is what an entry takes once it has all certificates, in bytes: so the
// list never has too little room for them.
func entrySize(text string) int {
	if text == "" {
		return 0
	}
	words := strings.SplitN(text, " ", entryWords)
	return len(strings.Join(words[:min(len(words), entryLeast)], " ")) + len(" , 1790000000") + 2*fingerprintSize + len(" "+sealMark) + fingerprintSize
}

// The minimum and maximum number of fields of an entry.
const entryLeast, entryWords = 4, 6

func uniformPrefix(pool fleet.ResourceID) string { return string(pool) + "/virtualMachines/" }

func flexiblePrefix(pool fleet.ResourceID) string {
	return string(pool.Group()) + "/providers/Microsoft.Compute/virtualMachines/"
}

// parseEntry reads one; "" is the zero value.
func parseEntry(text string, pools []string) (admitted, error) {
	if text == "" {
		return admitted{}, nil
	}
	parts := strings.Split(text, " ")
	if len(parts) < entryLeast || len(parts) > entryWords {
		return admitted{}, fmt.Errorf("an admission of %d words, want %d to %d", len(parts), entryLeast, entryWords)
	}
	millis, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return admitted{}, fmt.Errorf("an admission's time: %w", err)
	}
	i, err := strconv.Atoi(parts[2])
	if err != nil || i < 0 || i >= len(pools) {
		return admitted{}, fmt.Errorf("an admission's pool %q, of %d", parts[2], len(pools))
	}
	pool := fleet.ResourceID(pools[i])
	a := admitted{VMID: parts[0], Pool: pool, At: time.UnixMilli(millis).UTC()}
	if len(parts) > entryLeast {
		a.Certificates = parts[entryLeast]
		if a.Certificates == "" {
			return admitted{}, errors.New("an admission whose certificates are empty")
		}
	}
	if len(parts) == entryWords {
		seconds, err := strconv.ParseInt(parts[entryWords-1], 10, 64)
		if err != nil {
			return admitted{}, fmt.Errorf("the time of an admission's newest certificate: %w", err)
		}
		a.Newest = time.Unix(seconds, 0).UTC()
	}
	switch instance := parts[3]; {
	case strings.HasPrefix(instance, "/"):
		a.Instance = fleet.ResourceID(instance)
	case strings.HasPrefix(instance, "~"):
		a.Instance = fleet.ResourceID(flexiblePrefix(pool) + instance[1:])
	default:
		a.Instance = fleet.ResourceID(uniformPrefix(pool) + instance)
	}
	return a, nil
}

// poolsOf reads the table of an object.
func poolsOf(m *corev1.ConfigMap) ([]string, error) {
	text := m.Annotations[annotationPools]
	if text == "" {
		return nil, nil
	}
	var pools []string
	if err := json.Unmarshal([]byte(text), &pools); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", annotationPools, err)
	}
	return pools, nil
}

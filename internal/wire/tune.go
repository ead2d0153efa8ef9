package wire

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Names of tunings: what `ortet capture --tune` adds to an image, so that its clones are Ready
// sooner.
const (
	TuneKubeletEarly = "kubelet-early"
	TuneRuntimeEarly = "runtime-early"
	TuneSSHHostKey   = "ssh-host-key"
)

// Tunings returns all names, sorted.
func Tunings() []string { return append([]string{TuneKubeletEarly}, RecommendedTunings()...) }

// RecommendedTunings returns those that measurably help and that most pools can have, sorted.
func RecommendedTunings() []string { return []string{TuneRuntimeEarly, TuneSSHHostKey} }

// TuneRecommended is no name of a tuning: it stands for several.
const TuneRecommended = "recommended"

// ParseTunings returns the names that are meant, sorted and each once.
func ParseTunings(given []string) (names []string, err error) {
	for _, name := range given {
		switch name = strings.TrimSpace(name); {
		case name == TuneRecommended:
			names = append(names, RecommendedTunings()...)
		case slices.Contains(Tunings(), name):
			names = append(names, name)
		default:
			return nil, fmt.Errorf("unknown tuning %q: want %s, or any of %s", name, TuneRecommended, strings.Join(Tunings(), ", "))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// CheckTunings returns why tunings cannot be had together; baked means that clones get no user data.
func CheckTunings(names []string, baked bool) error {
	switch early := slices.Contains(names, TuneKubeletEarly); {
	case early && !baked:
		return fmt.Errorf("%s: only with --bootstrap baked: with keep clones run user data, which comes after the kubelet's start",
			TuneKubeletEarly)
	case early && !slices.Contains(names, TuneRuntimeEarly):
		return fmt.Errorf("%s: only with %s, or containerd starts too late for it; give both", TuneKubeletEarly, TuneRuntimeEarly)
	}
	return nil
}

// SplitTunings returns the names that JoinTunings joined, as a tag holds them.
func SplitTunings(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(name string) bool { return name == "" })
}

// JoinTunings is SplitTunings' inverse.
func JoinTunings(names []string) string { return strings.Join(names, ",") }

// Names of sources of a BootReport that carry facts of the image rather than times. They are
// sources and no fields, since an earlier controller refuses a report with an unknown field.
const (
	// SourceTuning is a file of a tuning, of which Detail is the name: SourceRead as the capture
	// wrote it, SourcePartial if somebody changed it, SourceMissing if it was deleted.
	SourceTuning = "tuning"
	// SourceSSHHostKey is a public host key, of which Detail is the type and the fingerprint:
	// "ssh-ed25519 SHA256:…".
	SourceSSHHostKey = "ssh-host-key"
	// SourceBaked means that the machine is a clone of a capture with --bootstrap baked, on which the
	// tuning kubelet-early gains time as far as disks show: there is one, and no btrfs or LVM.
	SourceBaked = "baked-clone"
	// SourceDiskRead is the OS disk, of which Detail is a DiskRead.
	SourceDiskRead = "disk-read"
	// SourceEarlierBoots are boots of the machine before the reported one, of which none was reported.
	// Detail is an EarlierBoots.
	SourceEarlierBoots = "earlier-boots"
)

// IsFact reports whether a source carries a fact in its Detail, and no times.
func (s BootSource) IsFact() bool {
	return s.Name == SourceTuning || s.Name == SourceSSHHostKey || s.Name == SourceDiskRead || s.Name == SourceEarlierBoots
}

const diskRead = " bytes read by microsecond "

// DiskRead is the Detail of a SourceDiskRead: bytes read, and when they were counted on the kernel's
// clock.
func DiskRead(bytes int64, at Micros) string {
	return strconv.FormatInt(bytes, 10) + diskRead + strconv.FormatInt(int64(at), 10)
}

// ParseDiskRead is DiskRead's inverse; false for another source and for what is out of bounds.
func ParseDiskRead(s BootSource) (bytes int64, at Micros, ok bool) {
	count, when, ok := strings.Cut(s.Detail, diskRead)
	bytes, err := strconv.ParseInt(count, 10, 60)
	n, err2 := strconv.ParseInt(when, 10, 64)
	at = Micros(n)
	ok = ok && errors.Join(err, err2) == nil && s.Name == SourceDiskRead && bytes >= 0 && at >= 0 && at <= maxMonotonic
	return bytes, at, ok
}

// Bounds of EarlierBoots. Azure ends an extension, which may restart a machine, after 90 minutes.
const (
	maxEarlierBoots  = 100
	maxEarlierBegins = 2 * 3600 * 1000000
)

const earlierBoots = " boots before, the first of them by microseconds "

// EarlierBoots is the Detail of a SourceEarlierBoots: how many boots there were, and how long before
// the reported one the first of them began.
func EarlierBoots(count int, before Micros) string {
	return strconv.Itoa(count) + earlierBoots + strconv.FormatInt(int64(before), 10)
}

// ParseEarlierBoots is EarlierBoots' inverse; false for another source and for what is out of bounds.
func ParseEarlierBoots(s BootSource) (count int, before Micros, ok bool) {
	boots, first, ok := strings.Cut(s.Detail, earlierBoots)
	count, err := strconv.Atoi(boots)
	n, err2 := strconv.ParseInt(first, 10, 64)
	ok = ok && errors.Join(err, err2) == nil && s.Name == SourceEarlierBoots && s.State == SourceRead &&
		count > 0 && count <= maxEarlierBoots && n > 0 && n <= maxEarlierBegins
	return count, Micros(n), ok
}

// SSHHostKey returns the Detail of a SourceSSHHostKey for a line of a public key file, "ssh-ed25519
// AAAA…"; "" for another line. Source of the fingerprint's form: ssh-keygen(1), -l.
func SSHHostKey(line string) string {
	f := strings.Fields(line)
	if len(f) < 2 || len(f[0]) > 64 {
		return ""
	}
	key, err := base64.StdEncoding.DecodeString(f[1])
	if err != nil || len(key) < 4 || !strings.HasPrefix(string(key[4:]), f[0]) { // it names its type
		return ""
	}
	sum := sha256.Sum256(key)
	return f[0] + " SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

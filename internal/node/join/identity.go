package join

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
	"github.com/ortet/ortet/internal/node/disk"
	"github.com/ortet/ortet/internal/node/generalize"
	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// RecordFile identifies the owner of the disk's identity, and is written last of all when a
// node has joined. It has no secret.
const RecordFile = "/var/lib/ortet/identity.json"

const maxRecord = 64 << 10

// State is how far a record's machine is.
type State string

// The values of State.
const (
	Joined     State = "joined"
	Discarding State = "discarding" // another machine's identity is being removed
	HasLeft    State = "left"       // its Node was given up: the next start joins again
)

// Record is what RecordFile holds.
type Record struct {
	State State  `json:"state"`
	VMID  string `json:"vmId"`
	// Firmware is the vmId by the machine's firmware when it joined; "" where unknown. It
	// is read first, since it needs no network.
	Firmware     string `json:"firmwareVmId,omitempty"`
	Distribution string `json:"distribution,omitempty"`
	NodeName     string `json:"nodeName,omitempty"`
	// ProviderID is "" where the node joined without us.
	ProviderID string `json:"providerId,omitempty"`
	// CAPin is "K10<SHA-256>" of k3s's or RKE2's token.
	CAPin string    `json:"caPin,omitempty"`
	At    time.Time `json:"at"`
	// TokenEnds is until when the token of At is good.
	TokenEnds time.Time `json:"tokenEnds,omitzero"`
}

// login is the kubelet's client certificate, as far as it matters here.
type login struct {
	node    string
	expires time.Time
	// stray is the name in another certificate that the kubelet would take for its
	// own; "" where there is none.
	stray string
}

// finding is what is to be done with the identity on a disk.
type finding string

const (
	isOwn     finding = "own"       // it is this machine's, and good
	isUsedUp  finding = "used up"   // it is this machine's, and does not serve any more
	isForeign finding = "foreign"   // another machine's, or of no machine
	isNone    finding = "none"      // there is none
	isUnknown finding = "not known" // Azure has to be asked who this machine is
)

// judge decides whose identity is on the disk, and why. r and l are nil where there is
// none. firmware is the vmId by the machine's firmware, "" where unknown; m is nil until
// Azure was asked.
func judge(r *Record, l *login, firmware string, m *Machine, now time.Time) (finding, string) {
	switch {
	case r == nil && l == nil:
		return isNone, "no kubelet has joined from this disk"
	case r == nil && m == nil:
		return isUnknown, ""
	case l != nil && l.stray != "":
		return isForeign, fmt.Sprintf("the kubelet's certificates are in the names %q and %q", l.node, l.stray)
	case r == nil:
		// Only a certificate is known: the API server could not decide either.
		if own := strings.ToLower(m.HostName); own == "" || l.node != own {
			return isForeign, fmt.Sprintf("the kubelet's certificate is in the name %q, this machine's is %q", l.node, own)
		}
	case r.State == Discarding:
		return isForeign, "removing another machine's identity was interrupted"
	default:
		// The firmware may come to spell it in another way; before anything is removed
		// Azure is asked.
		same := r.Firmware != "" && r.Firmware == firmware
		if !same && m == nil {
			return isUnknown, ""
		}
		same = same || r.VMID == m.VMID
		switch {
		case !same:
			return isForeign, fmt.Sprintf("the disk is that of the machine %s", r.VMID)
		case l != nil && r.NodeName != "" && l.node != r.NodeName:
			return isForeign, fmt.Sprintf("the kubelet's certificate is in the name %q, this machine joined as %q", l.node, r.NodeName)
		case r.State != Joined:
			return isUsedUp, "this node has left"
		case l == nil:
			return isUsedUp, "the kubelet has no certificate"
		}
	}
	if !l.expires.After(now) {
		return isUsedUp, "the kubelet's certificate ended at " + l.expires.UTC().Format(time.RFC3339)
	}
	return isOwn, ""
}

// readRecord is nil where no record can be read: what a power cut left of one is no
// evidence.
func readRecord(t *tree.Tree) (*Record, error) {
	text, err := t.ReadFile(RecordFile, maxRecord)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrTooLarge) || errors.Is(err, tree.ErrNotRegular) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading whose identity is on the disk: %w", err)
	}
	var r Record
	if json.Unmarshal(text, &r) != nil || !r.wellFormed() {
		return nil, nil //nolint:nilerr // no record is an answer
	}
	return &r, nil
}

// wellFormed reports whether all values that are written elsewhere are valid there.
func (r Record) wellFormed() bool {
	id, ok := strings.CutPrefix(r.ProviderID, "azure://")
	return vmIDShape.MatchString(r.VMID) && (r.NodeName == "" || dnsName.MatchString(r.NodeName)) && (r.ProviderID == "" || ok && resourceIDShape.MatchString(id))
}

func writeRecord(t *tree.Tree, r Record) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	// Who leaves has no time to wait until somebody makes room.
	if err = put(t, RecordFile, text); errors.Is(err, syscall.ENOSPC) && r.State == HasLeft && rewrite(t, RecordFile, text) == nil {
		return nil
	}
	return err
}

// readLogin is nil where the kubelet has no certificate that it could use. What
// cannot be read for another reason than what is in it is an error: nothing is thrown
// away since a disk did not answer.
func (c *Client) readLogin(t *tree.Tree) (*login, error) {
	pair, node, err := bootstrap.KubeletLogin(c.options.Root, c.kubeconfig())
	var broken *fs.PathError
	switch {
	case err == nil:
		l := &login{node: node, expires: pair.Leaf.NotAfter}
		l.stray, err = strayName(t, node)
		return l, err
	case !errors.Is(err, fs.ErrNotExist) && errors.As(err, &broken):
		return nil, fmt.Errorf("reading the kubelet's certificate: %w", err)
	}
	c.options.Log.Debug("no certificate of a kubelet's can be used", "error", err)
	return nil, nil
}

// discard removes an identity from the disk.
func (c *Client) discard(ctx context.Context, t *tree.Tree, scope generalize.Scope) error {
	mounts, err := mountPoints(t)
	if err != nil {
		return err
	}
	spare := func(at string) error {
		for _, m := range mounts {
			if m == at || strings.HasPrefix(m, at+"/") {
				return fmt.Errorf("discarding %s: %s is mounted there: stop the kubelet and its pods, or restart the machine, and join again", at, m)
			}
		}
		return nil
	}
	// The table knows where kubelets have theirs, the settings and the kubelet's flags
	// where this one has.
	own, err := certificatesElsewhere(t)
	if err != nil {
		return err
	}
	if kubeconfig := c.kubeconfig(); kubeconfig != "" {
		own = append(own, kubeconfig)
	}
	for _, p := range own {
		if err := spare(p); err != nil {
			return err
		}
	}
	n, err := generalize.Discard(ctx, t, scope, spare, c.options.Log)
	if err != nil {
		return err
	}
	for _, p := range own {
		more, err := t.Shred(p)
		if err != nil {
			return err
		}
		n.Add(more)
	}
	if n.Paths > 0 {
		c.options.Log.Info("discarded what was left of a kubelet", "scope", string(scope), "paths", n.Paths)
	}
	return nil
}

// mountPoints lists what is mounted, so that nothing is removed through a pod's
// volume: it may be somebody's data elsewhere. Source: proc_pid_mountinfo(5).
func mountPoints(t *tree.Tree) ([]string, error) {
	const list = "/proc/self/mountinfo"
	at := list
	if dir := t.Dir(); dir != "/" {
		at = path.Join(dir, list)
	}
	text, err := os.ReadFile(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking what is mounted: %w", err)
	}
	return parseMounts(text), nil
}

func parseMounts(text []byte) []string {
	var all []string
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) > 4 {
			all = append(all, disk.Unescape(fields[4]))
		}
	}
	return all
}

// put writes a file wholly or not at all, for root alone, on the disk when it
// returns.
func put(t *tree.Tree, name string, text []byte) error {
	if err := t.MkdirAll(path.Dir(name), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	// A file keeps its mode when it is replaced; one that others could read is closed
	// to them before a secret is in it.
	if at, err := t.Resolve(name, true); err == nil {
		if info, err := t.Root().Lstat(at); err == nil && info.Mode().IsRegular() && info.Mode().Perm() != 0o600 {
			if err := t.Root().Chmod(at, 0o600); err != nil {
				return fmt.Errorf("writing %s: %w", name, err)
			}
		}
	}
	return t.WriteFile(name, text, 0o600)
}

// rewrite writes a file in its place, for a disk that has no room for another one
// beside it: the text may not be longer than what is there. Unlike put it may be cut
// off by a power cut.
func rewrite(t *tree.Tree, name string, text []byte) error {
	f, info, err := t.OpenRegular(name, os.O_WRONLY)
	if err != nil {
		return err
	}
	if int64(len(text)) > info.Size() {
		return errors.Join(fmt.Errorf("writing %s in its place: %d bytes are more than %d", name, len(text), info.Size()), f.Close())
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// recordOf is the record of a node that has joined.
func recordOf(j wire.Join, distribution, firmware string, now time.Time) Record {
	r := Record{State: Joined, VMID: strings.ToLower(j.VMID), Firmware: firmware, Distribution: distribution, NodeName: j.NodeName, ProviderID: j.ProviderID, At: now.UTC().Truncate(time.Second), TokenEnds: j.Expires.UTC().Truncate(time.Second)}
	if pin, _, ok := strings.Cut(j.Token, "::"); ok {
		r.CAPin = pin
	}
	return r
}

package generalize

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

const (
	// chunk is how much of a file is looked at together. A file up to this size
	// is seen whole.
	chunk = 1 << 20
	// overlap is what neighbouring chunks share; no secret that is looked for is
	// longer (a PEM private key has at most some 13 KiB).
	overlap = 64 << 10
	// maxKeys bounds how many private keys are remembered for pairing.
	maxKeys = 10000
	// maxMentions bounds the report's list of harmless mentions.
	maxMentions = 50
	// progressEvery is how many bytes are scanned between two progress lines.
	progressEvery = 1 << 30
)

// scanner walks a tree once and gathers findings. It remembers no content.
type scanner struct {
	ctx      context.Context
	o        Options
	donor    facts
	skip     map[string]bool // paths that are going to be removed
	progress func(string)

	bytes, told int64
	findings    map[findingKey]wire.SecretFinding
	mentions    map[string]bool
	unscanned   []string
	keys        []foundKey          // private keys, to be paired with nodeKeys
	nodeKeys    map[[32]byte]string // public keys of node certificates, by their SHA-256
	buf         []byte
}

type findingKey struct{ path, rule string }

type foundKey struct {
	path   string
	public [32]byte
	vendor bool // lies where only the distribution writes, or in a program
}

// scan looks through the whole tree. Only the end of ctx is an error: what
// cannot be read is a finding.
func scan(ctx context.Context, t *tree.Tree, o Options, donor facts, skip map[string]bool, progress func(string)) (*scanner, error) {
	s := &scanner{
		ctx: ctx, o: o, donor: donor, skip: skip, progress: progress,
		findings: map[findingKey]wire.SecretFinding{}, mentions: map[string]bool{},
		nodeKeys: map[[32]byte]string{}, buf: make([]byte, chunk),
	}
	for k, v := range donor.nodeKeys {
		s.nodeKeys[k] = v
	}
	stores, err := imageStores(t)
	if err != nil {
		return nil, err
	}
	for _, dir := range stores {
		skip[dir] = true
		s.unscanned = append(s.unscanned, "/"+dir)
	}
	if err := s.dir(t.Root(), ".", 0); err != nil {
		return nil, err
	}
	s.pairKeys()
	return s, nil
}

func (s *scanner) find(at, rule string, class wire.SecretClass, detail string) {
	k := findingKey{at, rule}
	if _, ok := s.findings[k]; ok {
		return
	}
	s.findings[k] = wire.SecretFinding{Path: printable("/"+at, 1024), Class: class, Rule: rule, Detail: printable(detail, 256)}
}

// dir walks one directory, given open so that no path is looked up twice.
func (s *scanner) dir(root *os.Root, at string, depth int) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if depth > 128 {
		s.find(at, ruleUnreadable, wire.NodeIdentity, "directories within each other too deep to follow")
		return nil
	}
	d, err := root.Open(".")
	if err != nil {
		s.find(at, ruleUnreadable, wire.NodeIdentity, reason(err))
		return nil
	}
	entries, err := d.ReadDir(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		s.find(at, ruleUnreadable, wire.NodeIdentity, reason(err))
	}
	for _, e := range entries {
		below := path.Join(at, e.Name())
		if s.skip[below] {
			continue
		}
		if err := s.entry(root, e, below, depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) entry(root *os.Root, e fs.DirEntry, at string, depth int) error {
	s.byPath(at, e)
	switch {
	case e.IsDir():
		sub, err := root.OpenRoot(e.Name())
		if err != nil {
			s.find(at, ruleUnreadable, wire.NodeIdentity, reason(err))
			return nil
		}
		err = s.dir(sub, at, depth+1)
		return errors.Join(err, sub.Close())
	case e.Type().IsRegular():
		return s.file(root, e.Name(), at)
	}
	return nil // links, sockets, FIFOs and devices hold no content of the disk's
}

// file scans one regular file, a chunk at a time, holes passed over.
func (s *scanner) file(root *os.Root, name, at string) error {
	f, info, err := tree.OpenRegularIn(root, name, os.O_RDONLY)
	if err != nil {
		s.find(at, ruleUnreadable, wire.NodeIdentity, reason(err))
		return nil
	}
	defer func() { _ = f.Close() }() // only read from
	part := piece{path: at, vendor: isVendor(at)}
	for off := int64(0); off < info.Size(); {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if off, err = nextData(f, off, info.Size()); err != nil {
			s.find(at, ruleUnreadable, wire.NodeIdentity, reason(err))
			return nil
		}
		if s.bytes >= s.o.Limits.Bytes {
			s.find(at, ruleUnscanned, wire.NodeIdentity, fmt.Sprintf("the scan stops after %d bytes", s.o.Limits.Bytes))
			return nil
		}
		n, err := f.ReadAt(s.buf, off)
		if err != nil && !errors.Is(err, io.EOF) {
			s.find(at, ruleUnreadable, wire.NodeIdentity, reason(err))
			return nil
		}
		if n == 0 {
			return nil
		}
		if off == 0 {
			part.program = bytes.HasPrefix(s.buf[:n], []byte("\x7fELF"))
		}
		part.data, part.whole = s.buf[:n], off == 0 && int64(n) >= info.Size()
		s.content(part)
		s.count(n)
		if n < len(s.buf) || off+int64(n) >= info.Size() {
			return nil
		}
		off += chunk - overlap
	}
	return nil
}

func (s *scanner) count(n int) {
	s.bytes += int64(n)
	if s.bytes-s.told >= progressEvery {
		s.told = s.bytes
		s.progress(fmt.Sprintf("scanned %d GiB", s.bytes>>30))
	}
}

// pairKeys judges the private keys once all certificates are known: one that
// belongs to a node's certificate is that node's identity.
func (s *scanner) pairKeys() {
	for _, k := range s.keys {
		if where, ok := s.nodeKeys[k.public]; ok {
			s.find(k.path, ruleKubeletKey, wire.NodeIdentity, "the key of the node certificate at "+where)
		} else if !k.vendor {
			s.find(k.path, rulePrivateKey, wire.PoolCredential, "every clone would hold it")
		}
	}
}

func (s *scanner) key(at string, spki []byte, vendor bool) {
	if len(s.keys) >= maxKeys {
		s.find(at, ruleUnscanned, wire.NodeIdentity, "more private keys than can be compared")
		return
	}
	s.keys = append(s.keys, foundKey{at, sha256.Sum256(spki), vendor})
}

// into writes what was found into the report and sets its outcome.
func (s *scanner) into(r *wire.GeneralizeReport, o Options) {
	var fatal int
	all := make([]wire.SecretFinding, 0, len(s.findings))
	for _, f := range s.findings {
		f.Accepted = f.Class == wire.PoolCredential && o.AcceptPoolCredentials
		if !f.Accepted {
			fatal++
		}
		all = append(all, f)
	}
	// What fails comes first, so that the bound on findings never hides it.
	sort.Sort(byWeight(all))
	r.Findings = all[:min(len(all), o.Limits.Findings)]
	slices.Sort(s.unscanned)
	r.Unscanned = s.unscanned
	for m := range s.mentions {
		r.Mentions = append(r.Mentions, m)
	}
	slices.Sort(r.Mentions)
	r.Outcome = wire.Generalized
	if fatal > 0 {
		r.Outcome = wire.SecretsFound
		r.Message = printable(s.message(all, fatal), maxMessage)
	}
}

func (s *scanner) message(all []wire.SecretFinding, fatal int) string {
	var named []string
	pool := 0
	for _, f := range all {
		if f.Accepted {
			continue
		}
		if f.Class == wire.PoolCredential {
			pool++
		}
		if len(named) < 10 {
			named = append(named, fmt.Sprintf("%s (%s)", f.Path, f.Rule))
		}
	}
	m := fmt.Sprintf("the disk holds %d secrets that may not ship: %s", fatal, strings.Join(named, ", "))
	if fatal > len(named) {
		m += fmt.Sprintf(" and %d more", fatal-len(named))
	}
	if pool > 0 {
		m += "; credentials of the whole pool that clones need to join can be let pass with --accept-pool-credentials"
	}
	return m
}

// reason is an error without the path that it names, which the finding has.
func reason(err error) string {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// byWeight orders findings by whether they fail the scan, then by where they are.
// It and its like are here since slices.SortFunc is made anew for every type, for
// 30 KB of the agent each.
type byWeight []wire.SecretFinding

func (f byWeight) Len() int      { return len(f) }
func (f byWeight) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f byWeight) Less(i, j int) bool {
	if f[i].Accepted != f[j].Accepted {
		return f[j].Accepted
	}
	return f[i].Path+"\x00"+f[i].Rule < f[j].Path+"\x00"+f[j].Rule
}

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
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/redact"
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
	// maxTokens bounds how many tokens of a piece are decoded.
	maxTokens = 1000
	// maxWorkers bounds how many pieces are searched at the same time.
	maxWorkers = 4
	// progressEvery is how many bytes are scanned between two progress lines.
	progressEvery = 1 << 30
)

// scanner walks a tree once and gathers findings. It remembers no content. One
// goroutine walks and reads, and others search what was read.
type scanner struct {
	ctx        context.Context
	o          Options
	donor      facts
	known      *redact.Known
	skip       map[string]bool // paths that are going to be removed
	cleaned    map[string]bool // files that generalising empties
	agentFiles []agentFile
	lineRows   []Row // that drop lines
	progress   func(string)

	bytes, told int64
	stores      map[string]*wire.ImageStore // by path
	running     running
	work        chan work
	free        chan []byte
	emptied     []string // files of which a copy that was taken online may have lost the content
	removals    []string // files that --remove-secrets deletes

	mu       sync.Mutex // guards what follows
	findings map[findingKey]wire.SecretFinding
	perRule  map[string]int // how many of findings, by rule
	over     tally          // what is beyond the bound of a rule
	mentions map[string]bool
	keys     []foundKey          // private keys, to be paired with nodeKeys
	nodeKeys map[[32]byte]string // public keys of node certificates, by their SHA-256
}

type findingKey struct{ path, rule string }

type foundKey struct {
	path   string
	public [32]byte
}

// piece is a part of a file that is looked at together. Its Path is what rules go by: in
// an image layer, the path within the layer.
type piece struct {
	redact.Piece
	at    string // where it lies on the disk
	layer bool   // in an image store
}

// work is a piece to be searched, and the buffer that it lies in.
type work struct {
	piece
	byForm bool // not by value only
	buf    []byte
}

// scan looks through the whole tree. Only the end of ctx, or of an inspection's
// limits, is an error, which comes with what was found by then: what cannot be read
// is a finding.
func scan(ctx context.Context, t *tree.Tree, o Options, donor facts, skip, cleaned map[string]bool, progress func(string)) (*scanner, error) {
	known, err := redact.NewKnown(donor.secrets)
	if err != nil {
		return nil, fmt.Errorf("preparing the search for the donor's secrets: %w", err)
	}
	s := &scanner{
		ctx: ctx, o: o, donor: donor, known: known, skip: skip, cleaned: cleaned, progress: progress, agentFiles: agentFiles(),
		findings: map[findingKey]wire.SecretFinding{}, perRule: map[string]int{}, mentions: map[string]bool{},
		nodeKeys: map[[32]byte]string{}, stores: map[string]*wire.ImageStore{},
		lineRows: slices.DeleteFunc(Table(), func(r Row) bool { return r.lines == nil }),
	}
	for k, v := range donor.nodeKeys {
		s.nodeKeys[k] = v
	}
	if info, err := t.Root().Stat("."); err == nil {
		s.running.device, s.running.known = deviceOf(info)
	}
	stores, err := imageStores(t)
	if err != nil {
		return nil, err
	}
	for _, dir := range stores {
		s.stores[dir] = &wire.ImageStore{Path: printable("/"+dir, 1024), ByForm: o.ScanImages}
	}
	wait := s.startWorkers()
	if o.Inspect {
		err = s.likeliest(t.Root())
	}
	if err == nil {
		err = s.dir(t.Root(), ".", 0, "")
	}
	wait()
	s.pairKeys()
	return s, err
}

// startWorkers begins to search what is sent to s.work; wait ends that. A running node
// gets one worker, since it has other work.
func (s *scanner) startWorkers() (wait func()) {
	n := min(runtime.GOMAXPROCS(0), maxWorkers)
	if s.o.Inspect {
		n = 1
	}
	s.work, s.free = make(chan work), make(chan []byte, n+1)
	for range n + 1 {
		s.free <- make([]byte, chunk)
	}
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			for w := range s.work {
				s.search(w)
				s.free <- w.buf
			}
		})
	}
	return func() {
		close(s.work)
		workers.Wait()
	}
}

// search applies the rules to one piece. The donor's own secrets are looked for in
// everything.
func (s *scanner) search(w work) {
	for _, hit := range s.known.Find(w.Piece) {
		s.find(w.at, hit.Rule, hit.Class, where(w.piece, hit.From))
	}
	if w.byForm {
		s.content(w.piece)
	}
}

// dir walks one directory, given open so that no path is looked up twice. store is the
// image store that it lies in, or "".
func (s *scanner) dir(root *os.Root, at string, depth int, store string) error {
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
	if s.stores[at] != nil {
		store = at
	}
	for _, e := range entries {
		below := path.Join(at, e.Name())
		if s.skip[below] || s.o.Inspect && !s.inspects(e, below) {
			continue
		}
		if err := s.entry(root, e, below, depth, store); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) entry(root *os.Root, e fs.DirEntry, at string, depth int, store string) error {
	s.byPath(at, e)
	switch {
	case e.IsDir():
		sub, err := root.OpenRoot(e.Name() + "/.") // a FIFO in its place would block
		if err != nil {
			s.find(at, ruleUnreadable, wire.NodeIdentity, reason(err))
			return nil
		}
		if !s.o.Inspect || s.sameDisk(sub) {
			err = s.dir(sub, at, depth+1, store)
		}
		return errors.Join(err, sub.Close())
	case e.Type().IsRegular():
		return s.file(root, e.Name(), at, store)
	}
	return nil // links, sockets, FIFOs and devices hold no content of the disk's
}

// file reads one regular file, a chunk at a time, holes passed over.
func (s *scanner) file(root *os.Root, name, at, store string) error {
	f, info, err := tree.OpenRegularIn(root, name, os.O_RDONLY)
	if err != nil {
		s.find(at, ruleUnreadable, wire.NodeIdentity, reason(err))
		return nil
	}
	defer func() { _ = f.Close() }() // only read from
	if store == "" && s.o.isEmptied(at, info) && !s.cleaned[at] && len(s.emptied) <= maxListed {
		s.emptied = append(s.emptied, "/"+at)
	}
	if s.o.Inspect {
		if ok, err := s.opens(info); err != nil || !ok {
			return err
		}
	}
	p := piece{Piece: redact.Piece{Path: at}, at: at}
	if store != "" {
		s.stores[store].Bytes += info.Size()
		p.Path, p.layer = pathInLayer(at, store), true
	}
	p.Vendor = isVendor(p.Path)
	for off := int64(0); off < info.Size(); {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if off, err = nextData(f, off, info.Size()); err != nil {
			s.find(at, ruleUnreadable, wire.NodeIdentity, reason(err))
			return nil
		}
		if s.bytes >= s.o.Limits.Bytes {
			if s.o.Inspect {
				return errLimit
			}
			s.find(at, ruleUnscanned, wire.NodeIdentity, fmt.Sprintf("the scan stops after %d bytes", s.o.Limits.Bytes))
			return nil
		}
		buf := <-s.free
		n, err := f.ReadAt(buf, off)
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			s.free <- buf
			if err != nil && !errors.Is(err, io.EOF) {
				s.find(at, ruleUnreadable, wire.NodeIdentity, reason(err))
			}
			return nil
		}
		if off == 0 {
			p.Program = bytes.HasPrefix(buf[:n], []byte("\x7fELF"))
			if isSwap(buf[:n]) && !s.donor.swapFiles[at] {
				s.find(at, ruleSwapFile, wire.OtherSecret, "name it in /etc/fstab, and its content is overwritten; or remove it on the donor")
			}
		}
		p.Data, p.Whole = buf[:n], off == 0 && int64(n) >= info.Size()
		s.work <- work{piece: p, byForm: store == "" || s.o.ScanImages, buf: buf}
		s.count(n)
		if n < chunk || off+int64(n) >= info.Size() {
			return nil
		}
		off += chunk - overlap
	}
	return nil
}

// pathInLayer is a path within the root of the layer whose files lie below a store.
func pathInLayer(at, store string) string {
	at = strings.TrimPrefix(at, store+"/")
	if parts := strings.SplitN(at, "/", 3); len(parts) == 3 && (parts[1] == "fs" || parts[1] == "diff") {
		return parts[2]
	}
	return at
}

func (s *scanner) count(n int) {
	s.bytes += int64(n)
	if s.bytes-s.told >= progressEvery {
		s.told = s.bytes
		s.progress(fmt.Sprintf("scanned %d GiB", s.bytes>>30))
	}
}

// pairKeys judges the private keys once all certificates are known: one that
// belongs to a node's certificate is that node's identity. Others are found by form.
func (s *scanner) pairKeys() {
	for _, k := range s.keys {
		if where, ok := s.nodeKeys[k.public]; ok {
			s.find(k.path, ruleKubeletKey, wire.NodeIdentity, "the key of the node certificate at "+where)
		}
	}
}

func (s *scanner) key(at string, spki []byte) {
	s.mu.Lock()
	full := len(s.keys) >= maxKeys
	if !full {
		s.keys = append(s.keys, foundKey{at, sha256.Sum256(spki)})
	}
	s.mu.Unlock()
	if full {
		s.find(at, ruleUnscanned, wire.NodeIdentity, "more private keys than can be compared")
	}
}

// nodeKey remembers the public key of a node's certificate.
func (s *scanner) nodeKey(at string, spki []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.nodeKeys) < maxKeys {
		s.nodeKeys[sha256.Sum256(spki)] = "/" + at
	}
}

// mention remembers a file that names the donor where that does no harm.
func (s *scanner) mention(at string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mentions) < maxKeys {
		s.mentions[printable("/"+at, 1024)] = true
	}
}

// reason is an error without the path that it names, which the finding has.
func reason(err error) string {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

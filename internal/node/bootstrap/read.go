package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// Bounds of what is read.
const (
	maxFile     = 1 << 20   // bytes of a JSON file; cloud-init's have a few KiB
	maxTail     = 128 << 10 // bytes of a log's end
	maxTailLine = 1 << 10   // bytes of one of its lines
	maxTailRows = 1000      // of its lines
	readTries   = 3         // of a file that changes meanwhile
)

// errNotRegular means that something else than a file is at a file's path.
var errNotRegular = errors.New("not a regular file")

// OpenRegular opens a file for reading: no link out of its folder is followed,
// and nothing that could block or act on being opened (FIFO, device) is opened.
func OpenRegular(path string) (*os.File, fs.FileInfo, error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = dir.Close() }() // it was only read
	name := filepath.Base(path)
	info, err := dir.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is %s: %w", path, kind(info.Mode()), errNotRegular)
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	// It may have been exchanged between the two.
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is %s: %w", path, kind(info.Mode()), errNotRegular)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// kind names what stands in a file's place.
func kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a file"
	case m.IsDir():
		return "a directory"
	case m&fs.ModeSymlink != 0:
		return "a link"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else than a file"
}

// readWhole reads a small file. One that changed while it was read is read
// again, a few times; the last try is what counts then, since whoever changes it
// causes a notification.
func readWhole(path string) ([]byte, error) {
	var text []byte
	var err error
	for range readTries {
		var before, after identity
		text, before, err = readOnce(path)
		if err != nil {
			return nil, err
		}
		if after, err = identify(path); err == nil && after == before {
			break
		}
	}
	return text, err
}

func readOnce(path string) ([]byte, identity, error) {
	f, info, err := OpenRegular(path)
	if err != nil {
		return nil, identity{}, err
	}
	defer func() { _ = f.Close() }()
	if info.Size() > maxFile {
		return nil, identity{}, fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return text, identityOf(info), err
}

// identity identifies a file's content.
type identity struct {
	size     int64
	modified time.Time
}

func identityOf(info fs.FileInfo) identity {
	return identity{info.Size(), info.ModTime()}
}

func identify(path string) (identity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, err
	}
	return identityOf(info), nil
}

// tail is the end of a log, whatever its size.
func tail(path, source string) (verdict.Log, error) {
	f, info, err := OpenRegular(path)
	if err != nil {
		return verdict.Log{}, err
	}
	defer func() { _ = f.Close() }()
	at := max(0, info.Size()-maxTail)
	text, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, at, maxTail), maxTail))
	if err != nil {
		return verdict.Log{}, err
	}
	if onWindows && strings.HasPrefix(filepath.Base(path), cloudbaseInit) {
		text = pythonBytes(text, at > 0)
	}
	return lastLines(text, source, at > 0), nil
}

// lastLines are the lines of a log's end; cut means that there was more before, in which
// case the first line is incomplete, and left out where others follow.
func lastLines(text []byte, source string, cut bool) verdict.Log {
	l := verdict.Log{Source: source, Cut: cut}
	if _, rest, ok := bytes.Cut(text, []byte("\n")); cut && ok && len(rest) > 0 {
		text = rest
	}
	text = bytes.TrimRight(text, "\r\n\x00")
	if len(text) == 0 {
		return l
	}
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		l.Lines = append(l.Lines, harmless(line))
	}
	if drop := len(l.Lines) - maxTailRows; drop > 0 {
		l.Lines, l.Cut = l.Lines[drop:], true
	}
	return l
}

// harmless is a line that can be printed, within bounds. What a carriage return
// overwrote (progress bars) is left out.
func harmless(line []byte) string {
	line = bytes.TrimRight(line, "\r")
	if i := bytes.LastIndexByte(line, '\r'); i >= 0 {
		line = line[i+1:]
	}
	return verdict.Plain(string(line), maxTailLine)
}

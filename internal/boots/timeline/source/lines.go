package source

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/ortet/ortet/internal/wire"
)

// maxLine is how much of a line is looked at; the rest of it is passed over.
const maxLine = 64 << 10

// limited reads a file within the bound of its bytes: the start and the end of
// one that is longer and can be sought, else its start.
type limited struct {
	r       io.Reader
	left    int64 // to be read before the gap, or before the end
	tail    int64 // to be read after the gap; 0: there is none
	size    int64
	gap     bool // the next bytes are those after the gap
	cut     bool // something was left out
	stopped error
}

func limit(r io.Reader, most int64) *limited {
	l := &limited{r: r, left: most}
	s, ok := r.(io.Seeker)
	if !ok {
		return l
	}
	at, err := s.Seek(0, io.SeekCurrent)
	if err != nil {
		return l
	}
	size, err := s.Seek(0, io.SeekEnd)
	if _, back := s.Seek(at, io.SeekStart); back != nil {
		l.stopped = back
		return l
	}
	if err == nil && size-at > most {
		l.size, l.left = size, most/4
		l.tail = most - l.left
	}
	return l
}

func (l *limited) Read(p []byte) (int, error) {
	if l.stopped != nil {
		return 0, l.stopped
	}
	if l.left <= 0 {
		if l.tail == 0 {
			// Whether it ends just here is known only by reading on.
			var one [1]byte
			n, _ := io.ReadFull(l.r, one[:])
			l.cut = l.cut || n > 0
			l.stopped = io.EOF
			return 0, l.stopped
		}
		s, ok := l.r.(io.Seeker)
		if !ok {
			l.stopped = io.ErrUnexpectedEOF
			return 0, l.stopped
		}
		if _, err := s.Seek(l.size-l.tail, io.SeekStart); err != nil {
			l.stopped = err
			return 0, err
		}
		l.cut, l.gap = true, true
		l.left, l.tail = l.tail, 0
	}
	if int64(len(p)) > l.left {
		p = p[:l.left]
	}
	n, err := l.r.Read(p)
	l.left -= int64(n)
	if err != nil {
		if errors.Is(err, io.EOF) && l.tail > 0 { // it has become shorter
			l.tail = 0
		}
		l.stopped = err
	}
	return n, err
}

// lines are the lines of a text of any size, each bounded.
type lines struct {
	from  *limited
	r     *bufio.Reader
	line  []byte // the last, without its end; good until the next
	long  int    // how many were longer than maxLine
	bad   int    // how many the reader passed over as not to be understood
	good  int    // how many it understood
	other int    // how many were of another boot
}

func newLines(r io.Reader, o Options) *lines {
	from := limit(r, o.bytes())
	return &lines{from: from, r: bufio.NewReaderSize(from, maxLine)}
}

// next goes to the next line, and reports whether there is one.
func (l *lines) next() bool {
	line, err := l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long++
		l.line = append(l.line[:0:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.r.ReadSlice('\n')
		}
		line = l.line
	} else if err != nil && len(line) == 0 {
		return false
	}
	l.line = bytes.TrimRight(line, "\r\n")
	return true
}

// source returns the result of reading.
func (l *lines) source(name string, o Options) wire.BootSource {
	s := wire.BootSource{Name: name, Path: o.Path, State: wire.SourceRead}
	note := func(n int, what string) {
		if n > 0 {
			s.State = wire.SourcePartial
			s.Detail = join(s.Detail, strconv.Itoa(n)+" "+what)
		}
	}
	if l.from.cut {
		s.State = wire.SourcePartial
		s.Detail = "only " + strconv.FormatInt(o.bytes()>>10, 10) + " KiB of it were read"
	}
	if err := l.from.stopped; err != nil && !errors.Is(err, io.EOF) {
		s.State = wire.SourcePartial
		s.Detail = join(s.Detail, "reading stopped: "+detail(err.Error()))
	}
	note(l.long, "lines were longer than 64 KiB and cut")
	note(l.bad, "entries could not be understood")
	if l.good == 0 && l.other > 0 {
		s.State = wire.SourceOther
		s.Detail = join(s.Detail, "all of its entries are of other boots")
	}
	return s
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

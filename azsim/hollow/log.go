package hollow

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"
)

// maxLogLine bounds one line of a container's log, as containerd does; a longer
// one is cut into several.
const maxLogLine = 16 << 10

// A containerLog is a container's standard output and error, kept on the node's
// tree in the CRI's format: time, stream, F or P, text.
type containerLog struct {
	now func() time.Time

	mu      sync.Mutex
	file    *os.File
	path    string
	written int64
	ended   bool
	grown   chan struct{} // closed and replaced when there is more, or the end
}

func newContainerLog(path string, now func() time.Time) (*containerLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, err
	}
	return &containerLog{now: now, file: file, path: path, grown: make(chan struct{})}, nil
}

// emptyLog is that of a container that only claims to run.
func emptyLog() *containerLog {
	return &containerLog{ended: true, grown: make(chan struct{})}
}

// add writes one line.
func (l *containerLog) add(stream string, text []byte, whole bool) error {
	tag := "F"
	if !whole {
		tag = "P"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return os.ErrClosed
	}
	n, err := fmt.Fprintf(l.file, "%s %s %s %s\n", l.now().UTC().Format(time.RFC3339Nano), stream, tag, text)
	l.written += int64(n)
	close(l.grown)
	l.grown = make(chan struct{})
	return err
}

// end says that no more will come.
func (l *containerLog) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	l.ended = true
	close(l.grown)
	l.grown = make(chan struct{})
	return l.file.Close()
}

func (l *containerLog) state() (written int64, ended bool, grown <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written, l.ended, l.grown
}

// stream returns a writer for one of a container's streams; Close flushes a
// line without an end.
func (l *containerLog) stream(name string) io.WriteCloser { return &logStream{log: l, name: name} }

type logStream struct {
	log  *containerLog
	name string
	rest []byte
}

func (s *logStream) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for {
		line, rest, whole := bytes.Cut(s.rest, []byte("\n"))
		if !whole && len(s.rest) <= maxLogLine {
			return len(p), nil // an end of the line may follow, or the stream's
		}
		if len(line) > maxLogLine {
			line, rest, whole = s.rest[:maxLogLine], s.rest[maxLogLine:], false
		}
		if err := s.log.add(s.name, line, whole); err != nil {
			return 0, err
		}
		s.rest = append([]byte(nil), rest...)
	}
}

func (s *logStream) Close() error {
	if len(s.rest) == 0 {
		return nil
	}
	err := s.log.add(s.name, s.rest, true)
	s.rest = nil
	return err
}

// logOptions is what a caller wants of a log. Negative means no limit.
type logOptions struct {
	follow, timestamps, previous bool
	tail, limit                  int64
	since                        time.Time
}

// parseLogOptions reads the query of a log request. Source: the fields of
// v1.PodLogOptions, as the API server passes them on.
func parseLogOptions(query url.Values, now time.Time) (logOptions, error) {
	options := logOptions{tail: -1, limit: -1}
	for _, flag := range []struct {
		name string
		into *bool
	}{{"follow", &options.follow}, {"timestamps", &options.timestamps}, {"previous", &options.previous}} {
		if text := query.Get(flag.name); text != "" {
			value, err := strconv.ParseBool(text)
			if err != nil {
				return options, fmt.Errorf("%s=%q is neither true nor false", flag.name, text)
			}
			*flag.into = value
		}
	}
	for _, number := range []struct {
		name string
		into *int64
		min  int64
	}{{"tailLines", &options.tail, 0}, {"limitBytes", &options.limit, 1}} {
		if text := query.Get(number.name); text != "" {
			value, err := strconv.ParseInt(text, 10, 64)
			if err != nil || value < number.min {
				return options, fmt.Errorf("%s=%q is not a number of at least %d", number.name, text, number.min)
			}
			*number.into = value
		}
	}
	seconds, since := query.Get("sinceSeconds"), query.Get("sinceTime")
	switch {
	case seconds != "" && since != "":
		return options, errors.New("sinceSeconds and sinceTime exclude each other")
	case seconds != "":
		value, err := strconv.ParseInt(seconds, 10, 32)
		if err != nil || value < 1 {
			return options, fmt.Errorf("sinceSeconds=%q is not a positive number", seconds)
		}
		options.since = now.Add(-time.Duration(value) * time.Second)
	case since != "":
		value, err := time.Parse(time.RFC3339, since)
		if err != nil {
			return options, fmt.Errorf("sinceTime: %w", err)
		}
		options.since = value
	}
	return options, nil
}

// copy writes the log as options want it, until it ends, and with follow until
// the container does or ctx.
func (l *containerLog) copy(ctx context.Context, w io.Writer, options logOptions) (err error) {
	if l.path == "" {
		return nil
	}
	file, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer file.Close()
	written, ended, grown := l.state()
	skip := int64(0)
	if options.tail >= 0 {
		total, err := countLines(io.NewSectionReader(file, 0, written), options.since)
		if err != nil {
			return err
		}
		skip = max(0, total-options.tail)
	}
	out := &bounded{w: w, left: options.limit}
	offset := int64(0)
	for {
		reader := bufio.NewReaderSize(io.NewSectionReader(file, offset, written-offset), 2*maxLogLine)
		for {
			line, err := reader.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			offset += int64(len(line))
			at, text, ok := parseLogLine(line)
			if !ok || at.Before(options.since) {
				continue
			}
			if skip > 0 {
				skip--
				continue
			}
			if options.timestamps {
				text = append(at.UTC().AppendFormat(nil, time.RFC3339Nano+" "), text...)
			}
			if _, err := out.Write(text); err != nil {
				if errors.Is(err, errLimit) {
					return nil
				}
				return err
			}
		}
		if !options.follow || ended {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
		written, ended, grown = l.state()
	}
}

// tailText returns the last lines, for a termination message.
func (l *containerLog) tailText(lines, most int64) (string, error) {
	var text bytes.Buffer
	if err := l.copy(context.Background(), &text, logOptions{tail: lines, limit: -1}); err != nil {
		return "", err
	}
	content := text.Bytes()
	if int64(len(content)) > most {
		content = content[int64(len(content))-most:]
	}
	return string(content), nil
}

func countLines(r io.Reader, since time.Time) (n int64, err error) {
	reader := bufio.NewReaderSize(r, 2*maxLogLine)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if at, _, ok := parseLogLine(line); ok && !at.Before(since) {
			n++
		}
	}
}

// parseLogLine takes one CRI line apart; the text ends with a newline if the
// line was whole.
func parseLogLine(line []byte) (at time.Time, text []byte, ok bool) {
	parts := bytes.SplitN(line, []byte(" "), 4)
	if len(parts) != 4 {
		return at, nil, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(parts[0]))
	if err != nil {
		return at, nil, false
	}
	text = parts[3]
	if string(parts[2]) == "P" {
		text = bytes.TrimSuffix(text, []byte("\n"))
	}
	return at, text, true
}

// errLimit ends a copy that reached limitBytes.
var errLimit = errors.New("limit reached")

type bounded struct {
	w    io.Writer
	left int64 // negative: no limit
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left < 0 {
		return b.w.Write(p)
	}
	cut := p[:min(int64(len(p)), b.left)]
	n, err := b.w.Write(cut)
	b.left -= int64(n)
	if err == nil && b.left == 0 {
		err = errLimit
	}
	return n, err
}

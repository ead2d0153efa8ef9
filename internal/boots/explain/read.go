package explain

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
)

// Bounds of one text. What is kept is its end, which shows why a boot ended.
const (
	maxLine  = 256 << 10 // bytes of a line
	maxKept  = 8 << 20   // bytes, of all files
	maxLines = 50_000
	maxRead  = 1 << 30 // bytes
	peeked   = 64 << 10
)

// A Line is a line of a text, with its number in the file.
type Line struct {
	Number int
	Text   string
}

// A tail keeps the last lines that are added, within bounds: also where one line of a file
// is many, each with a head.
type tail struct {
	lines, bytes int // bounds
	kept         []Line
	size         int // bytes that are kept
}

func (t *tail) add(l Line) {
	t.kept = append(t.kept, l)
	for t.size += len(l.Text); (t.size > t.bytes || len(t.kept) > t.lines) && len(t.kept) > 1; t.kept = t.kept[1:] {
		t.size -= len(t.kept[0].Text)
	}
}

// A Text is what was read of one file.
type Text struct {
	Name  string
	Lines []Line
	Total int      // lines of the file
	Notes []string // what was left out, in words
}

// A NoTextError says that a file holds no text that could be judged: what it is, and what
// to do.
type NoTextError string

func (e NoTextError) Error() string { return "it is " + string(e) }

// Read reads one of some files to its end, or to 1 GiB. An error is one of reading, or a
// NoTextError. Memory is bounded whatever is read.
func Read(name string, r io.Reader, files int) (Text, error) {
	t := Text{Name: name}
	limited := &io.LimitedReader{R: r, N: maxRead}
	b := bufio.NewReaderSize(limited, peeked)
	head, err := b.Peek(peeked)
	if err != nil && !errors.Is(err, io.EOF) {
		return t, fmt.Errorf("cannot read it: %w", err)
	}
	if order, ok := utf16Order(head); ok {
		t.Notes = append(t.Notes, "it is UTF-16, as PowerShell writes, and was read as such")
		b = bufio.NewReaderSize(unicode.UTF16(order, unicode.UseBOM).NewDecoder().Reader(b), peeked)
		head, _ = b.Peek(peeked)
	}
	if what := noText(head); what != "" {
		return t, NoTextError(what)
	}
	long, kept := 0, tail{lines: maxLines / files, bytes: maxKept / files}
	for {
		line, more, err := readLine(b)
		if err != nil && !errors.Is(err, io.EOF) {
			return t, fmt.Errorf("cannot read it: %w", err)
		}
		if err != nil && line == "" {
			break
		}
		if t.Total++; more {
			long++
		}
		kept.add(Line{t.Total, line})
	}
	t.Lines = kept.kept
	if long > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("%d of its lines are longer than %d KiB and were cut", long, maxLine>>10))
	}
	if n := t.Total - len(t.Lines); n > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("its first %d lines were left out: give the part that is of the boot", n))
	}
	if limited.N <= 0 {
		t.Notes = append(t.Notes, "only its first GiB was read: give its end (tail -n 5000)")
	}
	return t, nil
}

// readLine reads a line, and says whether there was more of it than is kept.
func readLine(b *bufio.Reader) (string, bool, error) {
	var line []byte
	for {
		part, err := b.ReadSlice('\n')
		line = append(line, part[:min(len(part), max(0, maxLine-len(line)))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			text := strings.ToValidUTF8(string(bytes.TrimRight(line, "\r\n")), "�")
			if err == nil && text == "" {
				return "", false, nil
			}
			return text, len(line) >= maxLine, err
		}
	}
}

// noText says what a file is that holds no text, and what to do; "" where it is one.
func noText(head []byte) string {
	if len(bytes.TrimSpace(bytes.Trim(head, "\x00\ufeff"))) == 0 {
		return "empty: see that the command before the pipe printed something"
	}
	for _, m := range [...]struct{ magic, what string }{
		{"\x89PNG", "a picture: copy the text instead (az vm boot-diagnostics get-boot-log for a console)"},
		{"\xff\xd8\xff", "a picture: copy the text instead (az vm boot-diagnostics get-boot-log for a console)"},
		{"GIF8", "a picture: copy the text instead"}, {"BM\x00", "a picture: copy the text instead"}, {"%PDF", "a PDF: copy its text instead"},
		{"\x1f\x8b", "packed by gzip: unpack it with gunzip, or tar -xzf for an archive"}, {"\x28\xb5\x2f\xfd", "packed by zstd: unpack it with unzstd"},
		{"\xfd7zXZ\x00", "packed by xz: unpack it with unxz, or tar -xJf for an archive"}, {"BZh", "packed by bzip2: unpack it with bunzip2"},
		{"PK\x03\x04", "a zip archive: unpack it with unzip"}, {"7z\xbc\xaf", "an archive: unpack it with 7z x"},
		{"LPKSHHRH", "a journal's own file: print it with journalctl --file FILE -b"},
		{"ElfFile\x00", "a Windows event log: print it with wevtutil qe FILE /lf /f:text"},
		{"\x7fELF", "a program"}, {"MZ\x90", "a program"},
	} {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return m.what
		}
	}
	if len(head) > 262 && string(head[257:262]) == "ustar" {
		return "a tar archive: unpack it with tar -xf"
	}
	odd, runes := 0, 0
	for rest := head; len(rest) > 0; runes++ {
		r, n := utf8.DecodeRune(rest)
		if r == utf8.RuneError && n == 1 && len(rest) > utf8.UTFMax || r < ' ' && !strings.ContainsRune("\t\n\v\f\r\b\x1b\a\x00", r) {
			odd++
		}
		rest = rest[n:]
	}
	// A console has stretches of noise and zeros, and an old log is not UTF-8.
	if odd*4 > runes || bytes.Count(head, []byte{0})*2 > len(head) {
		return "binary: give a text"
	}
	return ""
}

// utf16Order says whether a text is UTF-16, and which of its bytes come first.
func utf16Order(head []byte) (order unicode.Endianness, is bool) {
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xfe")):
		return unicode.LittleEndian, true
	case bytes.HasPrefix(head, []byte("\xfe\xff")):
		return unicode.BigEndian, true
	}
	var zeros [2]int
	for i, c := range head {
		if c == 0 {
			zeros[i%2]++
		}
	}
	half := len(head) / 2
	order = unicode.Endianness(zeros[0] > zeros[1]) // BigEndian is true
	return order, half > 8 && max(zeros[0], zeros[1])*10 > half*7 && min(zeros[0], zeros[1])*10 < half
}

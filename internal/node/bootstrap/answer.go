package bootstrap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	maxHead    = 64 << 10 // bytes of an answer's head
	maxInterim = 4        // answers before the answer
)

// An httpAnswer is one, read wholly.
type httpAnswer struct {
	code   int
	status string // the first line's rest: "200 OK"
	head   string // the lines after it
	body   []byte
}

var errTooLong = errors.New("an HTTP answer that is too long")

// readAnswer reads the answer to a request of HTTP/1.1: its body ends by its length,
// by its last chunk, or, where it has neither, with the connection. Some servers keep
// that open also where they are asked to end it.
// Source: RFC 9112, 6.3 and 7.1.
func readAnswer(conn io.Reader) (a httpAnswer, err error) {
	r := bufio.NewReader(io.LimitReader(conn, maxHead+maxAnswer))
	for range maxInterim {
		if a, err = readHead(r); err != nil {
			return httpAnswer{}, err
		}
		if a.code/100 != 1 {
			break
		}
	}
	if a.code/100 == 1 || a.code == 204 || a.code == 304 {
		return a, nil
	}
	length := field(a.head, "Content-Length")
	switch {
	case strings.EqualFold(field(a.head, "Transfer-Encoding"), "chunked"):
		a.body, err = readChunks(r)
	case length != "":
		n, wrong := strconv.ParseUint(length, 10, 31)
		if wrong != nil {
			return httpAnswer{}, fmt.Errorf("an HTTP answer of the length %.40q", length)
		}
		a.body, err = readBody(r, int(n), nil)
	default:
		a.body, err = io.ReadAll(io.LimitReader(r, maxAnswer+1))
		if len(a.body) > maxAnswer {
			err = errTooLong
		}
		// Some servers end a connection without saying so.
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
	}
	if err != nil {
		return httpAnswer{}, fmt.Errorf("reading an HTTP answer: %w", err)
	}
	return a, nil
}

func readHead(r *bufio.Reader) (a httpAnswer, err error) {
	line, err := readLine(r)
	if err != nil {
		return a, fmt.Errorf("reading an HTTP answer: %w", err)
	}
	if a.code, a.status, err = parseStatusLine(line); err != nil {
		return a, err
	}
	var head strings.Builder
	for {
		if line, err = readLine(r); err != nil {
			return a, fmt.Errorf("an HTTP answer that ends in its head: %w", err)
		}
		if line == "" {
			a.head = head.String()
			return a, nil
		}
		if head.Len()+len(line) > maxHead {
			return a, errTooLong
		}
		head.WriteString(line + "\n")
	}
}

// readLine gives a line without its end.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) && len(line) < maxHead {
			continue
		}
		if err != nil {
			return "", err
		}
		return strings.TrimRight(string(line), "\r\n"), nil
	}
}

// field is a field of a head; names are alike in any letter case.
func field(head, name string) string {
	for line := range strings.Lines(head) {
		if n, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(n, name) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// readBody appends so many bytes.
func readBody(r io.Reader, n int, body []byte) ([]byte, error) {
	if n > maxAnswer-len(body) {
		return nil, errTooLong
	}
	at := len(body)
	body = append(body, make([]byte, n)...)
	_, err := io.ReadFull(r, body[at:])
	return body, err
}

func readChunks(r *bufio.Reader) (body []byte, err error) {
	for {
		line, err := readLine(r)
		if err != nil {
			return nil, err
		}
		size, _, _ := strings.Cut(line, ";")
		n, err := strconv.ParseUint(strings.TrimSpace(size), 16, 31)
		if err != nil {
			return nil, fmt.Errorf("a chunk of the size %.40q", size)
		}
		if n == 0 {
			return body, nil // what follows tells nothing that is wanted
		}
		if body, err = readBody(r, int(n), body); err != nil {
			return nil, err
		}
		if end, err := readLine(r); err != nil || end != "" {
			return nil, errors.Join(errors.New("a chunk that is longer than it says"), err)
		}
	}
}

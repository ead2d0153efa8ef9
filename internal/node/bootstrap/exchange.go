package bootstrap

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxAnswer bounds an HTTP answer: a Node with all its images has some 100 KiB.
const maxAnswer = 2 << 20

// exchange sends one HTTP request, by hand since net/http would make the agent
// half again as large, and gives what came. The connection serves for no other.
func exchange(ctx context.Context, u *url.URL, config *tls.Config, within time.Duration, request []byte) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	port := u.Port()
	dial := (&tls.Dialer{Config: config}).DialContext
	if u.Scheme == "http" {
		dial = new(net.Dialer).DialContext
		if port == "" {
			port = "80"
		}
	} else if port == "" {
		port = "443"
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err = conn.SetDeadline(deadline); err == nil {
		_, err = conn.Write(request)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// readStatus reads the first line of an HTTP answer.
func readStatus(r io.Reader) (code int, status string, err error) {
	line, err := bufio.NewReaderSize(io.LimitReader(r, 1<<10), 1<<10).ReadString('\n')
	if err != nil && (line == "" || !errors.Is(err, io.EOF)) {
		return 0, "", fmt.Errorf("reading an HTTP answer: %w", err)
	}
	return parseStatusLine(line)
}

func parseStatusLine(line string) (code int, status string, err error) {
	line = harmless([]byte(strings.TrimSpace(line)))
	protocol, rest, _ := strings.Cut(line, " ")
	number, _, _ := strings.Cut(rest, " ")
	if code, err = strconv.Atoi(number); err != nil || code < 100 || code > 999 || !strings.HasPrefix(protocol, "HTTP/1.") {
		return 0, "", fmt.Errorf("not an HTTP answer: %q", line)
	}
	return code, rest, nil
}

// dateOf is the time that the head of an answer says it is; zero where it does not.
func dateOf(head string) time.Time {
	t, err := time.Parse(time.RFC1123, field(head, "Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}

package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// kubeletAddress is where the kubelet tells its health, to its own node only.
	kubeletAddress = "127.0.0.1:10248"
	kubeletTimeout = time.Second
)

// kubeletUnits run a kubelet, in the order in which they are looked for.
func kubeletUnits() []string {
	return []string{"kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"}
}

// kubeletOnDisk says whether the node has a unit, or on Windows a program, that
// runs a kubelet.
func kubeletOnDisk(o Options) bool {
	paths := []string{"/k/kubelet.exe"} // where every Windows image for Kubernetes has it
	for _, dir := range []string{"/etc/systemd/system/", "/run/systemd/system/", "/usr/local/lib/systemd/system/", "/usr/lib/systemd/system/", "/lib/systemd/system/"} {
		for _, unit := range kubeletUnits() {
			paths = append(paths, dir+unit)
		}
	}
	for _, p := range paths {
		if _, err := os.Stat(o.under(p)); err == nil {
			return true
		}
	}
	return false
}

// kubeletCheck asks the kubelet for its health, at most once at a time, and
// remembers the last answer. Its zero value is not ready: set address and poke.
type kubeletCheck struct {
	address string
	poke    func()

	mu      sync.Mutex
	busy    bool
	asked   time.Time
	healthy bool
	last    string
	asking  sync.WaitGroup
}

// start asks, and pokes when there is an answer.
func (k *kubeletCheck) start(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy {
		return
	}
	k.busy = true
	k.asking.Go(func() {
		err := healthz(ctx, k.address)
		k.mu.Lock()
		k.busy, k.asked, k.healthy, k.last = false, time.Now(), err == nil, ""
		if err != nil {
			k.last = plainError(err)
		}
		k.mu.Unlock()
		k.poke()
	})
}

// answer is the last one; asked is zero where there is none.
func (k *kubeletCheck) answer() (asked time.Time, healthy bool, last string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked, k.healthy, k.last
}

// wait returns when no question is under way.
func (k *kubeletCheck) wait() { k.asking.Wait() }

// healthz is one HTTP request, by hand: net/http would make the agent half again
// as large.
func healthz(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET /healthz HTTP/1.0\r\nHost: %s\r\n\r\n", address); err != nil {
		return err
	}
	code, status, err := readStatus(conn)
	if err != nil {
		return err
	}
	if code != 200 {
		return errors.New(status)
	}
	return nil
}

// readStatus reads the first line of an HTTP answer.
func readStatus(r io.Reader) (code int, status string, err error) {
	line, err := bufio.NewReaderSize(io.LimitReader(r, 1<<10), 1<<10).ReadString('\n')
	if err != nil && (line == "" || !errors.Is(err, io.EOF)) {
		return 0, "", fmt.Errorf("reading an HTTP answer: %w", err)
	}
	line = harmless([]byte(strings.TrimSpace(line)))
	protocol, rest, _ := strings.Cut(line, " ")
	number, _, _ := strings.Cut(rest, " ")
	if code, err = strconv.Atoi(number); err != nil || code < 100 || code > 999 || !strings.HasPrefix(protocol, "HTTP/1.") {
		return 0, "", fmt.Errorf("not an HTTP answer: %q", line)
	}
	return code, rest, nil
}

// plainError is what people know it as, without addresses.
func plainError(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in " + kubeletTimeout.String()
	}
	return harmless([]byte(err.Error()))
}

package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ortet/ortet/internal/boots/verdict"
)

// Bounds of what is gathered.
const (
	journalRows = "400"
	maxJournals = 8
	// A failure is reported within a second, with the journals' entries up to then. Where
	// the kubelet failed after it they have the cause.
	journalTimeBefore = 700 * time.Millisecond
	journalTimeAfter  = 2 * time.Second
)

// gatherLogs reads the ends of logs; missing ones are left out. One that cannot be read is
// a line with the error, since that is evidence too.
func gatherLogs(o Options) []verdict.Log {
	var logs []verdict.Log
	for _, path := range logFiles() {
		source := path
		if onWindows {
			source = o.under(path) // as people there write it
		}
		l, err := tail(o.under(path), source)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			l = verdict.Log{Source: source, Lines: []string{"cannot be read: " + harmlessText(err.Error())}}
		} else if slices.Contains(kubeletLogs(), path) {
			l = ofThisBoot(l, bootBegan(o))
		}
		if len(l.Lines) > 0 {
			logs = append(logs, l)
		}
	}
	return logs
}

// journals are the ends of the journals of kubelet and containerd, of units that
// failed, and of the kernel, read at once and bounded in time. Without
// journalctl there are none.
func journals(ctx context.Context, program string, within time.Duration, units []verdict.Unit) []verdict.Log {
	if program == "" {
		return nil
	}
	names := []string{"kubelet.service", "containerd.service"}
	for _, u := range units {
		if !u.Missing && !slices.Contains(names, u.Name) && len(names) < maxJournals {
			names = append(names, u.Name)
		}
	}
	logs := make([]verdict.Log, len(names)+1)
	var reading sync.WaitGroup
	for i, name := range names {
		reading.Go(func() { logs[i] = journal(ctx, program, within, "journal "+name, "--unit="+name) })
	}
	reading.Go(func() { logs[len(names)] = journal(ctx, program, within, "journal kernel", "--dmesg") })
	reading.Wait()
	return slices.DeleteFunc(logs, func(l verdict.Log) bool { return len(l.Lines) == 0 })
}

// journalTime is how long journals may take.
func journalTime(st *state) time.Duration {
	if st.finished.IsZero() {
		return journalTimeBefore
	}
	return journalTimeAfter
}

func journal(ctx context.Context, program string, within time.Duration, source string, which ...string) verdict.Log {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	args := append([]string{"--boot", "--no-pager", "--quiet", "--output=short-monotonic", "--lines=" + journalRows}, which...)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0"}
	cmd.WaitDelay = within / 4
	end := &lastBytes{most: maxTail}
	cmd.Stdout = end
	// What came counts, also where it ended badly.
	_ = cmd.Run()
	return lastLines(end.bytes(), source, end.cut)
}

// bootBegan is when this boot began, with what the clock may have been set by; zero where
// unknown.
func bootBegan(o Options) time.Time {
	if up := Uptime(o.Root); up > 0 {
		return time.Now().Add(-up - rebootSlack)
	}
	return time.Time{}
}

// ofThisBoot leaves out of a kubelet's log the lines of earlier boots.
func ofThisBoot(l verdict.Log, booted time.Time) verdict.Log {
	for i, line := range l.Lines {
		if at := klogTime(line, booted); !at.IsZero() && !at.Before(booted) {
			l.Lines, l.Cut = l.Lines[i:], l.Cut || i > 0
			return l
		}
	}
	l.Lines = nil // those without a time follow one of an earlier boot
	return l
}

// klogTime is when a line of klog's, "I1121 08:00:00.000000 …", was written, by
// this system's time zone; zero where it is none. Lines bear no year: it is the
// one that brings them nearest to the time that they are compared with.
func klogTime(line string, near time.Time) time.Time {
	if len(line) < len("I1121 08:00:00") || strings.IndexByte("IWEF", line[0]) < 0 {
		return time.Time{}
	}
	near = near.Local()
	at, err := time.ParseInLocation("2006 0102 15:04:05", strconv.Itoa(near.Year())+" "+line[1:len("I1121 08:00:00")], time.Local)
	if err != nil {
		return time.Time{}
	}
	const halfYear = 183 * 24 * time.Hour
	switch apart := at.Sub(near); {
	case apart > halfYear:
		at = at.AddDate(-1, 0, 0)
	case apart < -halfYear:
		at = at.AddDate(1, 0, 0)
	}
	return at
}

// saidRegistered reports whether a kubelet's log or journal of this boot shows anywhere,
// and not only at its end, that the API server knows the node.
func saidRegistered(ctx context.Context, o Options, program string, within time.Duration) bool {
	for _, path := range kubeletLogs() {
		if fileSaidRegistered(o.under(path), bootBegan(o)) {
			return true
		}
	}
	if program == "" {
		return false
	}
	which := []string{"--grep=" + strings.Join(registrations(), "|")}
	for _, unit := range kubeletUnits() {
		which = append(which, "--unit="+unit)
	}
	// A line of its own that no entry was found is not of them.
	return registered([]verdict.Log{journal(ctx, program, within, "journal kubelet", which...)})
}

// maxScan is how much of a log's end is looked through for one line, in bytes:
// RKE2 begins another file after 50 MiB.
const maxScan = 64 << 20

// fileSaidRegistered searches a kubelet's log.
func fileSaidRegistered(path string, booted time.Time) bool {
	f, info, err := OpenRegular(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	r := bufio.NewReaderSize(io.NewSectionReader(f, max(0, info.Size()-maxScan), maxScan), 64<<10)
	for {
		line, err := r.ReadSlice('\n') // of a longer line its parts
		if said := (verdict.Log{Source: path, Lines: []string{string(line)}}); registered([]verdict.Log{said}) && !klogTime(said.Lines[0], booted).Before(booted) {
			return true
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return false
		}
	}
}

// registrations are the kubelet's messages that the API server knows the node. Source:
// kubernetes pkg/kubelet/kubelet_node_status.go.
func registrations() []string {
	return []string{"Successfully registered node", "was previously registered"}
}

// registered reports whether the kubelet's journal shows that the API server knows the
// node.
func registered(logs []verdict.Log) bool {
	for _, l := range logs {
		if !slices.ContainsFunc([]string{"kubelet", "k3s", "rke2"}, func(s string) bool { return strings.Contains(l.Source, s) }) || l.Source == nodeSource {
			continue
		}
		for _, line := range l.Lines {
			for _, words := range registrations() {
				if strings.Contains(line, words) {
					return true
				}
			}
		}
	}
	return false
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	most int
	kept []byte
	cut  bool
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p...)
	if len(l.kept) > 2*l.most {
		l.kept = append(l.kept[:0], l.kept[len(l.kept)-l.most:]...)
		l.cut = true
	}
	return len(p), nil
}

func (l *lastBytes) bytes() []byte {
	if len(l.kept) > l.most {
		l.cut = true
		return l.kept[len(l.kept)-l.most:]
	}
	return l.kept
}

// journalProgram is journalctl of this system; "" where there is none, or where
// the node's root is another than ours.
func journalProgram(o Options) string {
	if o.Root != "/" {
		return ""
	}
	for _, p := range []string{"/usr/bin/journalctl", "/bin/journalctl"} {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			return p
		}
	}
	return ""
}

// harmlessText is a text on one line that can be printed.
func harmlessText(s string) string {
	return harmless([]byte(strings.ReplaceAll(strings.TrimSpace(s), "\n", "; ")))
}

// commandsRanEarlier reports whether cloud-init skipped the user's commands in this boot,
// since they ran in an earlier one: then no sentinel is written. Source:
// canonical/cloud-init cloudinit/helpers.py, cloudinit/config/modules.py.
func commandsRanEarlier(l verdict.Log) bool {
	said := false
	for _, line := range l.Lines {
		if strings.Contains(line, "running 'modules:final'") || strings.Contains(line, "running 'init-local'") {
			said = false // another boot begins
		}
		if strings.Contains(line, "config-scripts-user already ran") || strings.Contains(line, "config-scripts_user already ran") ||
			strings.Contains(line, "config-scripts-user previously ran") || strings.Contains(line, "config-scripts_user previously ran") {
			said = true
		}
	}
	return said
}

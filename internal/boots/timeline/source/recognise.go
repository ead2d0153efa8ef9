package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// ErrUnknown means that a file is of no known kind.
var ErrUnknown = errors.New("unknown format")

// Names of sources that are files of systemd's.
const (
	sourceShow = "systemd-show"
	sourcePlot = "systemd-plot"
	sourceDump = "systemd-dump"
)

// peeked is how much of a file is looked at to find out what it is.
const peeked = 64 << 10

// reader is how a kind of file is recognised and read.
type reader struct {
	name string
	is   func(head []byte) bool
	read func(io.Reader, Options) []wire.BootReport
}

// readers are all kinds, by how sure their signs are.
func readers() []reader {
	return []reader{
		{"a journal's export", func(h []byte) bool {
			return lineStarts(h, "__CURSOR=") || lineStarts(h, "__REALTIME_TIMESTAMP=")
		}, Journal},
		{"a journal's JSON", func(h []byte) bool {
			return object(h) && has(h, `"__MONOTONIC_TIMESTAMP"`)
		}, Journal},
		{"a list of units (systemd-analyze plot --json)", func(h []byte) bool {
			return array(h) && has(h, `"activating"`, `"activated"`)
		}, Plot},
		{"cloud-init's events (cloud-init analyze dump)", func(h []byte) bool {
			return array(h) && has(h, `"event_type"`, `"timestamp"`)
		}, CloudInitEvents},
		{"cloud-init's status.json", func(h []byte) bool {
			return object(h) && has(h, `"v1"`) && (has(h, `"init-local"`) || has(h, `"modules-final"`))
		}, CloudInitStatus},
		{"cloud-init's result.json", func(h []byte) bool {
			return object(h) && has(h, `"v1"`, `"datasource"`, `"errors"`)
		}, CloudInitResult},
		{"AKS's events", func(h []byte) bool {
			return (object(h) || array(h)) && has(h, `"TaskName"`, `"OperationId"`)
		}, AKSEvents},
		{"AKS's provision.json", func(h []byte) bool {
			return object(h) && has(h, `"ExitCode"`) && (has(h, `"CSEStartTime"`) || has(h, `"KernelStartTime"`))
		}, AKSProvision},
		{"a pool of Hyper-V's key-value pairs", isKVP, KVP},
		{"systemctl show", func(h []byte) bool {
			return lineStarts(h, "InactiveExitTimestampMonotonic=") || lineStarts(h, "UserspaceTimestampMonotonic=")
		}, SystemctlShow},
		{"systemd-analyze dump", func(h []byte) bool {
			return has(h, "-> Unit ") && has(h, "Inactive Exit Timestamp: ") || lineStarts(h, "Manager: systemd ")
		}, Dump},
		{"cloud-init's log", isCloudInitLog, CloudInitLog},
		{"the Azure agent's log", isAgentLog, AgentLog},
		{"the custom script extension's log", func(h []byte) bool {
			return lineStarts(h, "time=") && has(h, " operation=", " event=")
		}, CSELog},
		{"containerd's log", func(h []byte) bool {
			return has(h, `time="`, ` level=`, ` msg=`)
		}, ContainerdLog},
		{"the kubelet's metrics", func(h []byte) bool {
			return lineStarts(h, "# HELP ") || lineStarts(h, "# TYPE ") || lineStarts(h, "kubelet_")
		}, KubeletMetrics},
	}
}

// afterChains are kinds whose signs also stand in texts with a chain in them.
func afterChains() []reader {
	return []reader{
		{"systemd-analyze time", func(h []byte) bool {
			return anyLine(h, func(line string) bool {
				_, ok := startupTimes(line)
				return ok
			})
		}, Times},
		{"systemd-analyze blame", func(h []byte) bool {
			return anyLine(h, isBlame)
		}, Blame},
	}
}

func has(head []byte, words ...string) bool {
	for _, w := range words {
		if !bytes.Contains(head, []byte(w)) {
			return false
		}
	}
	return true
}

func isAgentLog(head []byte) bool {
	return anyLine(head, func(line string) bool {
		if len(line) > 10 && line[4] == '/' && line[7] == '/' {
			line = line[:4] + "-" + line[5:7] + "-" + line[8:]
		}
		_, _, rest, ok := stamp(line)
		level, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
		return ok && agentLevel(level)
	})
}

func isKVP(head []byte) bool {
	if len(head) < kvpRecord || head[kvpKey-1] != 0 || head[kvpRecord-1] != 0 {
		return false
	}
	key := text(head[:kvpKey])
	for i := range key {
		if key[i] < ' ' || key[i] > '~' {
			return false
		}
	}
	return key != "" && strings.Trim(string(head[len(key):kvpKey]), "\x00") == ""
}

// Read reads a file of a machine, whose kind is recognised by its content and not by its
// name. name is in the reports, and in errors. It returns a report for each boot in it,
// oldest first where its source knows their order; a file without anything of the wanted
// boot returns one report, with the reason in its BootSource. Join puts the reports of
// several files together by boots.
//
// A file of no known kind returns ErrUnknown, with what was looked for; what is broken
// within a file is no error.
func Read(name string, r io.Reader, o Options) ([]wire.BootReport, error) {
	o.Path = name
	head := bufio.NewReaderSize(r, peeked)
	text, err := head.Peek(peeked)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	text = append([]byte(nil), text...)
	var from io.Reader = head
	if s, ok := r.(io.Seeker); ok {
		if _, err := s.Seek(0, io.SeekStart); err == nil {
			from = r
		}
	}
	if what := packed(text); what != "" {
		return nil, fmt.Errorf("%s is %s: %w", name, what, ErrUnknown)
	}
	if object(text) && bytes.Contains(text, []byte(`"version"`)) && (bytes.Contains(text, []byte(`"system"`)) || bytes.Contains(text, []byte(`"sources"`))) {
		return readReport(name, from)
	}
	kinds := readers()
	for _, k := range kinds {
		if k.is(text) {
			return merged(k.read(from, o)), nil
		}
	}
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	if !bytes.Contains(text, []byte{0}) {
		// A chain may come after much else, so it has to be read to be found.
		if reports := CriticalChains(from, o); len(reports[0].Units) > 0 {
			return merged(reports), nil
		}
	}
	for _, k := range afterChains() {
		names = append(names, k.name)
		if k.is(text) {
			return merged(k.read(bytes.NewReader(text), o)), nil
		}
	}
	return nil, fmt.Errorf("%s: %w: want %s, or a text with a chain of systemd-analyze critical-chain", name, ErrUnknown, strings.Join(names, ", "))
}

// merged makes each of a file's reports one that is valid.
func merged(reports []wire.BootReport) []wire.BootReport {
	for i := range reports {
		reports[i] = gatherAll(reports[i : i+1])
	}
	return reports
}

func readReport(name string, r io.Reader) ([]wire.BootReport, error) {
	text, err := io.ReadAll(io.LimitReader(r, wire.MaxBootReport+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	report, err := wire.ParseBootReport(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return []wire.BootReport{report}, nil
}

// packed returns what has to be unpacked, and how.
func packed(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		return "packed by gzip (unpack it with gunzip)"
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		return "packed by zstd (unpack it with unzstd)"
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return "packed by xz (unpack it with unxz)"
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return "UTF-16, as PowerShell writes (change it with iconv -f UTF-16 -t UTF-8)"
	case bytes.HasPrefix(head, []byte("LPKSHHRH")):
		return "a journal's own file (print it with journalctl --file FILE -o export)"
	}
	return ""
}

func object(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n\ufeff\x1e")
	return len(head) > 0 && head[0] == '{'
}

func array(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n\ufeff")
	return len(head) > 0 && head[0] == '['
}

func lineStarts(head []byte, with string) bool {
	return bytes.HasPrefix(head, []byte(with)) || bytes.Contains(head, []byte("\n"+with))
}

// anyLine reports whether is holds for one of the lines, also the last, which may be cut
// off.
func anyLine(head []byte, is func(line string) bool) bool {
	for len(head) > 0 {
		line, rest, _ := bytes.Cut(head, []byte("\n"))
		head = rest
		if len(line) <= 4096 && is(strings.TrimRight(string(line), "\r")) {
			return true
		}
	}
	return false
}

func isCloudInitLog(head []byte) bool {
	return anyLine(head, func(line string) bool {
		_, _, rest, ok := stamp(line)
		where, _, found := strings.Cut(strings.TrimPrefix(rest, " - "), "]: ")
		return ok && found && strings.HasPrefix(rest, " - ") && strings.Contains(where, ".py[")
	})
}

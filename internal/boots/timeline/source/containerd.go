package source

import (
	"bytes"
	"io"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// ContainerdLog reads containerd's log for its pulls of images:
//
//	time="2024-11-12T17:24:10.123456789Z" level=info msg="PullImage \"mcr.microsoft.com/oss/kubernetes/pause:3.6\""
//
// also where another program's prefix, as journalctl's, stands before it.
func ContainerdLog(r io.Reader, o Options) []wire.BootReport {
	in := newLines(r, o)
	b := newBoot()
	var m marks
	var last wire.Micros
	s := wire.BootSpan{Clock: wire.ClockWall}
	for in.next() {
		line := string(in.line)
		_, rest, ok := strings.Cut(line, `time="`)
		if !ok {
			continue
		}
		at, grain, _, ok := stamp(rest)
		if !ok {
			in.bad++
			continue
		}
		if !o.covers(at) {
			in.other++
			continue
		}
		in.good++
		last, s.Grain = max(last, at), grain
		m.pull(b, s, in.line, at)
	}
	m.close(b, s, last)
	source := in.source(sourceContainerd, o)
	if in.good == 0 && source.State == wire.SourceRead {
		source = nothing(source, "no line of containerd is in it")
	}
	return []wire.BootReport{b.done(source)}
}

// untagged is an image's reference without its digest, which differs where the
// tag is the same.
func untagged(image string) string {
	name, _, _ := strings.Cut(image, "@sha") // sha256:, sha512:; another @ may stand before a registry
	return name
}

type pullEvent int

const (
	pullBegins pullEvent = iota
	pullEnds
	pullFails
)

// pullLine reads containerd's log lines of a pull:
//
//	PullImage "IMAGE"
//	Pulled image "IMAGE" with image id …, size "…" in 1.2s
//	PullImage "IMAGE" returns image reference "sha256:…"
//	PullImage "IMAGE" failed
//
// with quotes as they are or escaped. Source of fact:
// containerd/internal/cri/server/images/image_pull.go.
func pullLine(text []byte) (image string, what pullEvent, took wire.Micros) {
	for _, begin := range [...]string{`PullImage `, `Pulled image `} {
		i := bytes.Index(text, []byte(begin))
		if i < 0 {
			continue
		}
		rest := bytes.TrimPrefix(text[i+len(begin):], []byte(`\`))
		rest, ok := bytes.CutPrefix(rest, []byte(`"`))
		if !ok {
			continue
		}
		end := bytes.IndexAny(rest, `\"`)
		if end <= 0 || end > 1024 {
			continue
		}
		name := string(rest[:end])
		rest = bytes.TrimPrefix(bytes.TrimPrefix(rest[end:], []byte(`\`)), []byte(`"`))
		switch {
		case begin == `Pulled image `:
			if _, after, ok := bytes.Cut(rest, []byte(` in `)); ok {
				took = goDuration(string(bytes.TrimRight(after, "\" \\")))
			}
			return name, pullEnds, took
		case bytes.Contains(rest, []byte("returns image reference")):
			return name, pullEnds, 0
		case bytes.Contains(rest, []byte("failed")):
			return name, pullFails, 0
		}
		return name, pullBegins, 0
	}
	return "", 0, 0
}

package play

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/node/generalize/program"
)

// mostWritten is about how many lines the agent writes, at one of which it is killed.
const mostWritten = 40

// A run is what came of ortet-node generalize in a pod.
type run struct {
	code int32
	said []byte           // what the kubelet has of its output
	left map[string]entry // on the disk
}

// agent runs ortet-node generalize, as the container's command says, on files of its own:
// on the disk at the pod's LUN, or on the root of its node. Where point is not 0 it is killed
// when it writes that line. Nil is no disk.
func (w *world) agent(p *corev1.Pod, command []string, on *content, point int) run {
	host, err := os.MkdirTemp(memory(), "ortet-play-")
	if err != nil {
		w.broken("a pod has no files: %v", err)
		return run{code: program.ExitFailed}
	}
	defer func() { _ = os.RemoveAll(host) }() // what is left is in memory, and small
	dir := host
	if lun := flagOf(command, "--lun"); lun != "" {
		dir = filepath.Join(host, "dev/disk/azure/scsi1/lun"+lun)
	}
	if on != nil {
		if err := on.put(dir); err != nil {
			w.broken("a pod's files cannot be made: %v", err)
		}
	}
	said := &output{point: point, dir: dir}
	if on == nil {
		said.point = 0 // it does nothing at which it could be killed
	}
	out := run{code: w.invoked(command, host, said)}
	if said.left == nil && on != nil {
		said.left, err = filesBelow(dir)
	}
	if err := errors.Join(err, said.err); err != nil {
		w.broken("what pod %s left cannot be read: %v", p.Name, err)
	}
	out.said, out.left = said.text.Bytes(), said.left
	return out
}

// invoked runs a command line of ortet-node, and gives its exit code.
func (w *world) invoked(command []string, host string, said io.Writer) int32 {
	const wrongUsage = 64
	if len(command) < 2 || command[0] != "ortet-node" || command[1] != "generalize" {
		return wrongUsage
	}
	args := slices.Clone(command[2:])
	for i, a := range args {
		if a == "/host" { // where the pod has its node's root
			args[i] = host
		}
	}
	if p, ok := said.(*output); ok && p.point > 0 {
		args = append(args, "--verbose")
	}
	var f program.Flags
	fs := flag.NewFlagSet("generalize", flag.ContinueOnError)
	fs.SetOutput(said)
	f.Define(fs)
	err := fs.Parse(args)
	if err == nil && fs.NArg() > 0 {
		err = errors.New("unexpected argument " + strings.Join(fs.Args(), " "))
	}
	o, wrong := f.Options()
	if err := errors.Join(err, wrong); err != nil {
		_, _ = io.WriteString(said, err.Error()+"\n") // it is a buffer
		return wrongUsage
	}
	return int32(program.Run(w.over, f, o, said, said))
}

// output is what a container writes, on both of its streams. At line point its process
// is killed: what is on the disk then is what it leaves.
type output struct {
	point int
	dir   string

	mu    sync.Mutex
	lines int
	text  bytes.Buffer
	left  map[string]entry
	err   error
}

func (o *output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left != nil {
		return len(line), nil
	}
	if o.lines++; o.point > 0 && o.lines >= o.point || o.point > 0 && bytes.HasPrefix(line, []byte(`{"report"`)) {
		o.left, o.err = filesBelow(o.dir)
		return len(line), nil
	}
	return o.text.Write(line)
}

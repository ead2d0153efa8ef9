//go:build unix

package cli

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A connection that its peer reset raises the same signal, and says nothing of the output.
func TestOnlyAReaderThatHasGoneCounts(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	if isClosedPipe(w) {
		t.Error("a pipe that is read counts as closed")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if !isClosedPipe(w) {
		t.Error("a pipe whose reader has gone does not count as closed")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0) // as Node.js gives a child
	if err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(pair[0]), "socket")
	defer func() { _ = socket.Close() }()
	if isClosedPipe(socket) {
		t.Error("a socket that is read counts as closed")
	}
	if err := unix.Close(pair[1]); err != nil {
		t.Fatal(err)
	}
	if !isClosedPipe(socket) {
		t.Error("a socket whose reader has gone does not count as closed")
	}
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if isClosedPipe(file) {
		t.Error("a file counts as a closed pipe")
	}
}

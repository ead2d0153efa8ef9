package files_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/internal/node/config/files"
)

// Who owns a folder exchanges one in it with a FIFO, all the time: no open waits for a
// writer.
func TestHole03FIFOTakesAFoldersPlace(t *testing.T) {
	root := t.TempDir()
	folder, fifo := root+"/conf.d", root+"/fifo"
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	fs, err := files.OS(root)
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, folder, unix.AT_FDCWD, fifo, unix.RENAME_EXCHANGE)
			}
		}
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			_, _ = fs.Lstat("/conf.d/x.conf") // an error as often as not
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("an open waits for a writer of the FIFO")
	}
	close(stop)
	<-stopped
	for _, name := range []string{folder, fifo} { // ends the open that waits
		if f, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			_ = f.Close()
		}
	}
}

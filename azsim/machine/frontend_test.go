//go:build linux

package machine

import (
	"io"
	"net"
	"testing"
)

// A relay passes bytes and their end in both directions, and its close ends what
// is under way.
func TestRelay(t *testing.T) {
	target, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer target.Close()
	go func() {
		for {
			c, err := target.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c) // an echo
				_ = c.Close()
			}()
		}
	}()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	stop := startRelay(front, func() (string, error) { return target.Addr().String(), nil })

	c, err := net.Dial("tcp", front.Addr().String())
	must(t, err)
	_, err = c.Write([]byte("hello"))
	must(t, err)
	must(t, c.(*net.TCPConn).CloseWrite())
	if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}

	idle, err := net.Dial("tcp", front.Addr().String())
	must(t, err)
	_, err = idle.Write([]byte("x"))
	must(t, err)
	_, err = io.ReadFull(idle, make([]byte, 1))
	must(t, err)
	must(t, stop())
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived its relay")
	}
}

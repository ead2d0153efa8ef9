package events

import (
	"context"
	"net"
	"strings"
	"time"
)

// Notifier returns a function that sends the daemon's state ("READY=1") to systemd, by the
// socket of NOTIFY_SOCKET; for "" it does nothing. Source of fact: sd_notify(3).
func Notifier(socket string) func(state string) {
	if socket == "" {
		return func(string) {}
	}
	if strings.HasPrefix(socket, "@") {
		socket = "\x00" + socket[1:] // of Linux's own names
	}
	return func(state string) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, "unixgram", socket)
		if err != nil {
			return // systemd notices and reports the missing message
		}
		_, _ = conn.Write([]byte(state))
		_ = conn.Close()
	}
}

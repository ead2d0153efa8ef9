package events

import (
	"context"
	"net"
	"strings"
	"time"
)

// Notifier returns who tells systemd of the daemon's state ("READY=1"), by the socket
// that systemd names in NOTIFY_SOCKET; "" tells nobody. Source of fact: sd_notify(3).
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
			return // systemd will miss it, and say so
		}
		_, _ = conn.Write([]byte(state))
		_ = conn.Close()
	}
}

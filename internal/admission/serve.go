package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/ortet/ortet/internal/wire"
)

const (
	headersFor = 5 * time.Second
	idleFor    = 15 * time.Second
	// endFor is how long requests may go on once the server is to end. Then they are
	// given up, drains among them, and nodes ask again.
	endFor = 20 * time.Second
	// giveUpFor is how long these may take to answer, to write it down, and to withdraw a
	// token. With endFor it fits into the 30 s that a pod has to end.
	giveUpFor = 7 * time.Second
)

// Serve answers on a listener by TLS until ctx ends, and then lets what was begun
// end, for a while. It closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener, certificates *Certificates) error {
	requests, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	server := &http.Server{
		Handler: s, BaseContext: func(net.Listener) context.Context { return requests }, MaxHeaderBytes: wire.MaxProof + 8<<10,
		ReadHeaderTimeout: headersFor, ReadTimeout: headersFor + bodyFor, IdleTimeout: idleFor, WriteTimeout: answerIn,
		ErrorLog: slog.NewLogLogger(quietHandler{s.config.Log.Handler()}, slog.LevelDebug),
		// HTTP/2 has much state for each connection, and no node asks for it.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	limited := netutil.LimitListener(newSharing(l, s.config.Limits, s.config.Now, s.meters.closed.Inc), s.config.Limits.Connections)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(tls.NewListener(limited, certificates.config())) }()
	telling, told := context.WithCancel(context.WithoutCancel(ctx))
	var last sync.WaitGroup
	last.Go(func() { s.tellOmissions(telling) })
	defer last.Wait() // the counts of what was refused until the end are written
	defer told()
	select {
	case err := <-ended:
		return fmt.Errorf("serve admissions on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	shutdown := func(limit time.Duration) error {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		return server.Shutdown(within)
	}
	if shutdown(s.endFor) != nil {
		giveUp()
		if shutdown(giveUpFor) != nil {
			if err := server.Close(); err != nil {
				return fmt.Errorf("end the admission server: %w", err)
			}
		}
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admissions on %s: %w", l.Addr(), err)
	}
	return nil
}

// quietHandler leaves out what everybody who scans ports could fill the log with.
type quietHandler struct{ slog.Handler }

func (q quietHandler) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: TLS handshake error") {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

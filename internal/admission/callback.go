package admission

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

const (
	// callbackFor is how long a node has to answer, at all its addresses.
	callbackFor  = 3 * time.Second
	maxCallbacks = 4 // addresses of one instance
)

// errWrongKey is of who answered with another key than the proof's.
var errWrongKey = errors.New("another key than the proof's")

// callBack sees that who holds the proof's key answers at one of the addresses that
// the cloud gives the instance, and at no other: what the network sends there
// reaches the machine. Nothing is sent but a TLS handshake, which proves that the
// key is held.
func (s *Server) callBack(ctx context.Context, who proven, port int) error {
	addresses := who.member.Addresses[:min(len(who.member.Addresses), maxCallbacks)]
	if len(addresses) == 0 {
		return refuse(CallbackFailed, errors.New("the cloud gives the instance no address"))
	}
	within, cancel := context.WithTimeout(ctx, s.config.CallbackTimeout)
	defer cancel()
	answers := make(chan error, len(addresses))
	for _, a := range addresses {
		go func() { answers <- s.handshake(within, a, port, who.key) }()
	}
	reason, errs := CallbackFailed, []error(nil)
	for range addresses {
		err := <-answers
		if err == nil {
			return nil
		}
		if errors.Is(err, errWrongKey) {
			reason = CallbackWrongKey
		}
		errs = append(errs, err)
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		reason = Canceled
	}
	return refuse(reason, errors.Join(errs...))
}

func (s *Server) handshake(ctx context.Context, at netip.Addr, port int, key *ecdsa.PublicKey) (err error) {
	address := net.JoinHostPort(at.String(), strconv.Itoa(port))
	defer func() {
		if err != nil {
			err = fmt.Errorf("call back %s: %w", address, err)
		}
	}()
	raw, err := s.config.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	conn := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS13,
		// Nobody vouches for the certificate: its key is what counts, and the handshake
		// proves that it is held.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || !key.Equal(state.PeerCertificates[0].PublicKey) {
				return errWrongKey
			}
			return nil
		},
		SessionTicketsDisabled: true,
	})
	err = conn.HandshakeContext(ctx)
	if closeErr := raw.Close(); err == nil && closeErr != nil {
		return closeErr
	}
	return err
}

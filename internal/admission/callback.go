package admission

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// DefaultCallbackPort is that of ortet-node join. Pods in the machine's network that are
// not root cannot have a port below 1024.
const DefaultCallbackPort = 340

const (
	// callbackFor is how long a node has to answer, at all its addresses.
	callbackFor  = 3 * time.Second
	maxCallbacks = 4 // addresses of one instance
)

// errWrongKey is of who answered with another key than the proof's.
var errWrongKey = errors.New("another key than the proof's")

// callBack verifies that the holder of the proof's key answers at an address of the
// instance's primary network interface. Secondary interfaces do not count: they may be in
// a pod's network namespace. All that is sent is a challenge (wire.CallbackText).
func (s *Server) callBack(ctx context.Context, who proven, port int) error {
	addresses := who.member.Addresses[:min(len(who.member.Addresses), max(who.member.OfPrimary, 0), maxCallbacks)]
	if len(addresses) == 0 {
		return refuse(CallbackFailed, errors.New("the instance's primary network interface has no address in Azure"))
	}
	within, cancel := context.WithTimeout(ctx, s.config.CallbackTimeout)
	defer cancel()
	answers := make(chan error, len(addresses))
	for _, a := range addresses {
		go func() { answers <- s.challenge(within, a, port, who.key) }()
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

func (s *Server) challenge(ctx context.Context, at netip.Addr, port int, key *ecdsa.PublicKey) (err error) {
	address := net.JoinHostPort(at.String(), strconv.Itoa(port))
	defer func() {
		if err != nil {
			err = fmt.Errorf("call back %s: %w", address, err)
		}
	}()
	challenge := make([]byte, wire.ChallengeSize)
	if _, err := io.ReadFull(s.config.Random, challenge); err != nil {
		return err
	}
	conn, err := s.config.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	// It was read from: an error of closing it does not matter.
	defer func() { _ = conn.Close() }()
	hangUp := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer hangUp()
	if _, err := conn.Write(challenge); err != nil {
		return err
	}
	var size [1]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	if size[0] == 0 || size[0] > wire.MaxCallbackSignature {
		return errWrongKey // somebody who speaks another protocol
	}
	signature := make([]byte, size[0])
	if _, err := io.ReadFull(conn, signature); err != nil {
		return err
	}
	digest := sha256.Sum256(wire.CallbackText(challenge))
	if !ecdsa.VerifyASN1(key, digest[:], signature) {
		return errWrongKey
	}
	return nil
}

package join

import (
	"errors"
	"net"
	"time"
)

// How long is waited between tries.
const (
	firstPause = time.Second
	mostPause  = 30 * time.Second
	// finalPause is after what is the same until somebody changes something.
	finalPause = time.Minute
	mostFinal  = 5 * time.Minute
)

// pause is the wait after this number of failed tries in a row, the last with err; never
// less than the server asks for. chance, random from 0 to less than 1, spreads nodes that
// failed together.
func pause(failed int, err error, chance float64) time.Duration {
	least, grown := time.Duration(0), grow(firstPause, mostPause, failed)
	refused := new(RefusedError)
	if errors.As(err, &refused) {
		least = time.Duration(refused.After) * time.Second
	}
	if refused.Final || errors.Is(err, errHere) || errors.Is(err, errGrant) {
		least = max(least, finalPause)
		grown = grow(finalPause, mostFinal, failed)
	}
	// Half of it is fixed, half is random; or a quarter more than the least.
	d := grown/2 + time.Duration(chance*float64(grown/2))
	return max(d, least+time.Duration(chance*float64(least)/4))
}

func grow(first, most time.Duration, failed int) time.Duration {
	d := first
	for range min(failed-1, 16) {
		if d *= 2; d >= most {
			return most
		}
	}
	return d
}

// reason identifies a cause, so that the same is logged once: ports and times differ from
// try to try.
func reason(err error) string {
	var refused *RefusedError
	var lookup *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &refused):
		return refused.Reason
	case errors.As(err, &lookup):
		return "looking up " + lookup.Name + ": " + lookup.Err
	case errors.As(err, &op) && op.Err != nil:
		to := ""
		if op.Addr != nil {
			to = " " + op.Addr.String()
		}
		return op.Op + to + ": " + op.Err.Error()
	}
	return err.Error()
}

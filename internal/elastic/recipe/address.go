package recipe

import (
	"fmt"
	"net/netip"
)

// serverHost is the server's number in its subnet; Azure keeps the first four.
const serverHost = 10

func serverAddress(subnet string) (string, error) {
	p, err := netip.ParsePrefix(subnet)
	if err != nil {
		return "", fmt.Errorf("subnet of the server: %w", err)
	}
	a := p.Masked().Addr()
	for range serverHost {
		a = a.Next()
	}
	return a.String(), nil
}

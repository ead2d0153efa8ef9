//go:build !linux

package machine

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"github.com/ortet/ortet/azsim"
)

var errUnsupported = errors.New("real machines need Linux")

// Config is as on Linux.
type Config struct {
	Dir        string
	Images     map[string]string
	Subnet     netip.Prefix
	Frontends  []Frontend
	Trust      map[string]string
	NameServer string
	Log        *slog.Logger
}

// A Frontend is as on Linux.
type Frontend struct{ Listen, Target string }

// Substrate is as on Linux; here there is none.
type Substrate struct{ azsim.Substrate }

// New fails: machines need Linux.
func New(Config) (*Substrate, error) { return nil, errUnsupported }

// Clean fails: machines need Linux.
func Clean(string) error { return errUnsupported }

// Close does nothing.
func (*Substrate) Close() error { return nil }

// AddFrontend fails: machines need Linux.
func (*Substrate) AddFrontend(Frontend) error { return errUnsupported }

// Address fails: machines need Linux.
func (*Substrate) Address(string) (netip.Addr, error) { return netip.Addr{}, errUnsupported }

// VolumeFile returns no file.
func (*Substrate) VolumeFile(azsim.Volume) string { return "" }

// Exec fails: machines need Linux.
func (*Substrate) Exec(context.Context, string, []byte, ...string) ([]byte, error) {
	return nil, errUnsupported
}

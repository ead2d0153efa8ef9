package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/azsim/hollow"
	"github.com/ortet/ortet/azsim/machine"
)

// A substrate is an azsim.Substrate that holds resources of this computer.
type substrate interface {
	azsim.Substrate
	Close() error
}

// instanceOptions are the flags that concern what instances are.
type instanceOptions struct {
	kind string

	// hollow
	programs  []string
	clientCA  string
	bootstrap string
	status    time.Duration

	// machine
	images    []string
	frontends []string
	subnet    string
	names     string
}

// The kinds of instances.
const (
	kindNone    = "none"
	kindHollow  = "hollow"
	kindMachine = "machine"
)

func (o *instanceOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.kind, "instances", "", "`KIND` of instances: hollow (a Node without a machine), machine (a real operating system; needs root on Debian) or none (API objects only) (default: hollow with --kubeconfig, else none)")
	f.StringArrayVar(&o.programs, "program", nil, "hollow: `NAME=PATH` of a command that pods really run; repeatable")
	f.StringVar(&o.clientCA, "client-ca", "", "hollow: PEM `FILE` of the CA whose client certificates the kubelets accept")
	f.StringVar(&o.bootstrap, "bootstrap-kubeconfig", "", "hollow: bootstrap kubeconfig `FILE` that is written to new nodes")
	f.DurationVar(&o.status, "status-interval", 5*time.Minute,
		"hollow: time between a kubelet's reports of an unchanged status, rounded up to 10s")
	f.StringArrayVar(&o.images, "image", nil, "machine: raw disk image, `URN=FILE` with the URN PUBLISHER:OFFER:SKU:VERSION, or * for every image; repeatable")
	f.StringArrayVar(&o.frontends, "frontend", nil, "machine: `LISTEN=TARGET`, an address in the machines' network that forwards to one of the host; repeatable")
	f.StringVar(&o.subnet, "subnet", "", "machine: `CIDR` of the machines' network, a /24 such as 10.90.1.0/24")
	f.StringVar(&o.names, "name-server", machine.NamesAnswered,
		"machine: how the name server of the machines' network answers: "+strings.Join(machine.NameServers, ", "))
}

func (o *instanceOptions) validate(kubeconfig string) error {
	if o.kind == "" {
		o.kind = kindNone
		if kubeconfig != "" {
			o.kind = kindHollow
		}
	}
	var problems []error
	switch o.kind {
	case kindNone, kindHollow, kindMachine:
	default:
		problems = append(problems, fmt.Errorf("--instances %q: want hollow, machine or none", o.kind))
	}
	if !slices.Contains(machine.NameServers, o.names) {
		problems = append(problems, fmt.Errorf("--name-server %q: want one of %s", o.names, strings.Join(machine.NameServers, ", ")))
	}
	for flag, list := range map[string][]string{"--program": o.programs, "--image": o.images, "--frontend": o.frontends} {
		if _, err := pairs(flag, list); err != nil {
			problems = append(problems, err)
		}
	}
	if o.subnet != "" {
		if _, err := netip.ParsePrefix(o.subnet); err != nil {
			problems = append(problems, fmt.Errorf("--subnet: %w", err))
		}
	}
	return errors.Join(problems...)
}

// pairs reads flags of the form KEY=VALUE.
func pairs(flag string, list []string) (map[string]string, error) {
	out := make(map[string]string, len(list))
	for _, p := range list {
		k, v, found := strings.Cut(p, "=")
		if !found || k == "" || v == "" {
			return nil, fmt.Errorf("%s %q: want KEY=VALUE", flag, p)
		}
		out[k] = v
	}
	return out, nil
}

// open makes the substrate, nil for none.
func (o *instanceOptions) open(serve serveOptions, point *endpoint, log *slog.Logger) (substrate, error) {
	switch o.kind {
	case kindHollow:
		return o.openHollow(serve, point, log)
	case kindMachine:
		return o.openMachine(serve, log)
	}
	return nil, nil
}

func (o *instanceOptions) openHollow(serve serveOptions, point *endpoint, log *slog.Logger) (substrate, error) {
	programs, err := pairs("--program", o.programs)
	if err != nil {
		return nil, usageError{err}
	}
	var clientCA, bootstrap []byte
	for path, into := range map[string]*[]byte{o.clientCA: &clientCA, o.bootstrap: &bootstrap} {
		if path == "" {
			continue
		}
		if *into, err = os.ReadFile(path); err != nil {
			return nil, usageError{err}
		}
	}
	s, err := hollow.New(hollow.Config{
		Dir: filepath.Join(serve.dir, "hollow"), Kubeconfig: serve.kubeconfig, BootstrapKubeconfig: bootstrap,
		AzureJSON: point.azureJSON, Programs: programs, ClientCA: clientCA, StatusInterval: o.status, LoopbackAddresses: true, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("hollow instances: %w", err)
	}
	return s, nil
}

func (o *instanceOptions) openMachine(serve serveOptions, log *slog.Logger) (substrate, error) {
	images, err := pairs("--image", o.images)
	if err != nil {
		return nil, usageError{err}
	}
	c := machine.Config{Dir: filepath.Join(serve.dir, "machine"), Images: images, Log: log, NameServer: o.names, Trust: map[string]string{
		"arm.pem": filepath.Join(serve.dir, caFile), "attestation.pem": filepath.Join(serve.dir, attestationFile),
	}}
	for _, f := range o.frontends {
		listen, target, _ := strings.Cut(f, "=")
		c.Frontends = append(c.Frontends, machine.Frontend{Listen: listen, Target: target})
	}
	if o.subnet != "" {
		if c.Subnet, err = netip.ParsePrefix(o.subnet); err != nil {
			return nil, usageError{fmt.Errorf("--subnet: %w", err)}
		}
	}
	s, err := machine.New(c)
	if err != nil {
		return nil, fmt.Errorf("machine instances: %w", err)
	}
	return s, nil
}

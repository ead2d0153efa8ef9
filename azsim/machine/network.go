//go:build linux

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// imdsAddress is where Azure's instance metadata service answers.
var imdsAddress = netip.MustParseAddr("169.254.169.254")

const (
	bridgeName    = "fabric"
	netnsFolder   = "/run/netns"
	machineDevice = "eth0"
)

// fabric is the network between the machines and with the host.
type fabric struct {
	prefix string // of all names
	subnet netip.Prefix
}

func (f fabric) namespace() string { return f.prefix }

// nth is the subnet's n-th address.
func (f fabric) nth(n int) netip.Addr {
	a := f.subnet.Masked().Addr().As4()
	a[3] += byte(n)
	return netip.AddrFrom4(a)
}

// gateway is the machines' way out, and where frontends listen.
func (f fabric) gateway() netip.Addr { return f.nth(1) }

// pods is the range of pod addresses that belongs to the n-th machine, as a
// route table gives each node of a kubenet cluster one.
func (f fabric) pods(n int) netip.Prefix {
	a := podRange(f.subnet).Addr().As4()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{a[0], a[1], byte(n), 0}), 24)
}

// create makes the bridge and the host's way to it. What is there of a former
// run is taken away before by Clean.
func (f fabric) create(ctx context.Context) error {
	host := f.prefix + "h"
	if err := ip(ctx, "", "netns add "+f.namespace()); err != nil {
		return err
	}
	if err := ip(ctx, f.namespace(),
		"link set lo up",
		// An address of its own: otherwise the bridge has that of one of its ports,
		// and another whenever a machine goes, which cuts all others off from their
		// gateway until they ask anew who it is.
		fmt.Sprintf("link add %s address %s type bridge", bridgeName, f.hardware(1)),
		fmt.Sprintf("addr add %s/%d dev %s", f.gateway(), f.subnet.Bits(), bridgeName),
		"link set "+bridgeName+" up",
	); err != nil {
		return err
	}
	if err := setIn(f.namespace(), "net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	if err := ip(ctx, "",
		fmt.Sprintf("link add %s type veth peer name host netns %s", host, f.namespace()),
		fmt.Sprintf("addr add %s/%d dev %s", f.nth(2), f.subnet.Bits(), host),
		"link set "+host+" up",
	); err != nil {
		return err
	}
	return ip(ctx, f.namespace(), "link set host master "+bridgeName, "link set host up", "route add default via "+f.nth(2).String())
}

func (f fabric) machineNamespace(n int) string { return fmt.Sprintf("%s-%d", f.prefix, n) }

// connect makes the network namespace of the n-th machine, with its address and
// default route, and routes its pods to it.
func (f fabric) connect(ctx context.Context, n int) error {
	ns, port := f.machineNamespace(n), fmt.Sprintf("m%d", n)
	if err := ip(ctx, "", "netns add "+ns); err != nil {
		return err
	}
	if err := ip(ctx, f.namespace(),
		fmt.Sprintf("link add %s type veth peer name %s address %s netns %s", port, machineDevice, f.hardware(n), ns),
		fmt.Sprintf("link set %s master %s", port, bridgeName),
		fmt.Sprintf("link set %s up", port),
		fmt.Sprintf("route replace %s via %s", f.pods(n), f.nth(n)),
	); err != nil {
		return err
	}
	if err := ip(ctx, ns,
		"link set lo up",
		fmt.Sprintf("addr add %s/32 dev lo", imdsAddress),
		fmt.Sprintf("addr add %s/%d dev %s", f.nth(n), f.subnet.Bits(), machineDevice),
		"link set "+machineDevice+" up",
		"route add default via "+f.gateway().String(),
	); err != nil {
		return err
	}
	return ip(ctx, "", fmt.Sprintf("route replace %s via %s", f.pods(n), f.nth(n)))
}

// hardware is the MAC address of the n-th machine, in a vendor range that Azure
// uses.
func (f fabric) hardware(n int) string {
	a := f.nth(n).As4()
	return fmt.Sprintf("00:0d:3a:%02x:%02x:%02x", a[1], a[2], a[3])
}

// disconnect takes the n-th machine's namespace and with it both ends of its
// wire away; gone already is no error.
func (f fabric) disconnect(ctx context.Context, n int) error {
	// The kernel takes a namespace down after the fact. Deleting the wire first
	// frees its name for the next boot.
	if exists(filepath.Join(netnsFolder, f.namespace())) {
		err := ip(ctx, f.namespace(), fmt.Sprintf("link delete m%d", n))
		if err != nil && !strings.Contains(err.Error(), "Cannot find device") {
			return err
		}
	}
	return deleteNamespace(ctx, f.machineNamespace(n))
}

func deleteNamespace(ctx context.Context, name string) error {
	if !exists(filepath.Join(netnsFolder, name)) {
		return nil
	}
	return ip(ctx, "", "netns delete "+name)
}

// remove takes away all that create and connect made, whoever made it.
func (f fabric) remove(ctx context.Context) error {
	all, err := filepath.Glob(filepath.Join(netnsFolder, f.prefix+"*"))
	if err != nil {
		return err
	}
	var errs error
	for _, ns := range all {
		if name := filepath.Base(ns); name == f.prefix || strings.HasPrefix(name, f.prefix+"-") {
			errs = errors.Join(errs, deleteNamespace(ctx, name))
		}
	}
	// The kernel takes namespaces down after the fact; the host's end of the
	// wire must not be there when the next run makes its own.
	if exists("/sys/class/net/" + f.prefix + "h") {
		if err := ip(ctx, "", "link delete "+f.prefix+"h"); err != nil && exists("/sys/class/net/"+f.prefix+"h") {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// ip runs iproute2's commands in a network namespace, "" being the host's.
func ip(ctx context.Context, namespace string, commands ...string) error {
	args := []string{"-batch", "-"}
	if namespace != "" {
		args = append([]string{"-n", namespace}, args...)
	}
	cmd := exec.CommandContext(ctx, "ip", args...)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ip %s (%s): %w: %s", strings.Join(args, " "), strings.Join(commands, "; "), err, strings.TrimSpace(out.String()))
	}
	return nil
}

// within runs f in a network namespace. What f opens stays in it.
func within(namespace string, f func() error) error {
	ns, err := os.Open(filepath.Join(netnsFolder, namespace))
	if err != nil {
		return err
	}
	defer ns.Close()
	done := make(chan error, 1)
	go func() {
		// The thread is not unlocked: the runtime ends it with the goroutine, so
		// that nothing else ever runs in the namespace.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", namespace, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// setIn writes a kernel setting of a network namespace. A fresh view of /proc
// is not needed: /proc/sys/net shows that of the thread that looks.
func setIn(namespace, name, value string) error {
	return within(namespace, func() error {
		return os.WriteFile("/proc/sys/"+name, []byte(value), 0o600)
	})
}

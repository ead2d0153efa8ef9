//go:build linux

package machine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/azsim"
)

// Config says where machines live and what they see.
type Config struct {
	// Dir holds volumes and consoles, on a file system with room for them. It
	// is made if missing. Volumes and shares outlive the Substrate,
	// machines do not.
	Dir string
	// Images maps marketplace images, "publisher:offer:sku:version", to raw disk
	// image files. A version "latest" stands for all versions, "*" for all images.
	Images map[string]string
	// Subnet is the /24 of the machines, 10.n.m.0/24 with n at most 191; pods
	// get 10.n+64.x.0/24. Zero means one that the host has not.
	Subnet netip.Prefix
	// Frontends are addresses in the machines' network that lead to the host's,
	// as an internal load balancer does: the API server, ARM.
	Frontends []Frontend
	// Trust is read-only files for each machine in /run/platform/trust: the name
	// there, and the file on the host, read whenever a machine is switched on.
	Trust map[string]string
	// NameServer is one of NameServers, "" the first: how the name server of the machines' network
	// answers. It knows the machines' names, and no other.
	NameServer string
	// Log is told what happens; nil means nobody is.
	Log *slog.Logger
}

// A Frontend is a TCP address in the machines' network and where it leads.
type Frontend struct {
	Listen string // "10.96.0.1:443"; ":6443" is the gateway's port
	Target string // as the host sees it, "127.0.0.1:6443"
}

// Substrate runs computers as real machines. See azsim.Substrate for what its
// methods promise.
type Substrate struct {
	config  Config
	dir     string // without links
	fabric  fabric
	volumes *store
	log     *slog.Logger
	lock    *os.File

	mu        sync.Mutex
	closers   []func() error
	computers map[string]*computer

	publishing sync.Mutex // of the next
	published  map[netip.Addr]*publication

	sharing sync.Mutex // of what is beneath sharesDir
}

var _ azsim.Substrate = (*Substrate)(nil)
var _ azsim.Grower = (*Substrate)(nil)

// Prefix is the beginning of every name on the host that a lab in dir makes:
// network namespaces, devices, control groups.
func Prefix(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "azm" + hex.EncodeToString(sum[:4])
}

// New takes what a killed run left in config.Dir away, and makes the machines'
// network. It fails where another process uses the folder, and where the host
// cannot run machines, naming all that is missing.
func New(config Config) (_ *Substrate, err error) {
	log := cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	if err := requirements(); err != nil {
		return nil, err
	}
	dir, lock, err := take(config.Dir)
	if err != nil {
		return nil, err
	}
	s := &Substrate{
		config:    config,
		dir:       dir,
		fabric:    fabric{prefix: Prefix(dir)},
		volumes:   newStore(filepath.Join(dir, "volumes"), config.Images),
		log:       log,
		lock:      lock,
		computers: map[string]*computer{},
		published: map[netip.Addr]*publication{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := clean(context.Background(), dir); err != nil {
		return nil, err
	}
	for _, d := range []string{s.volumes.dir, filepath.Join(dir, "machines"), s.sharesDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	if s.fabric.subnet, err = chooseSubnet(config.Subnet, dir, net.InterfaceAddrs); err != nil {
		return nil, err
	}
	if err := s.fabric.create(context.Background()); err != nil {
		return nil, fmt.Errorf("make the machines' network: %w", err)
	}
	if err := s.serveNames(); err != nil {
		return nil, err
	}
	for _, f := range config.Frontends {
		if err := s.AddFrontend(f); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close stops all computers at once and takes everything away but the volumes
// and shares.
func (s *Substrate) Close() error {
	s.mu.Lock()
	all := make([]*computer, 0, len(s.computers))
	for _, c := range s.computers {
		all = append(all, c)
	}
	closers := s.closers
	s.closers = nil
	s.mu.Unlock()
	var errs error
	for _, c := range all {
		errs = errors.Join(errs, s.Remove(context.Background(), c.id))
	}
	errs = errors.Join(errs, s.unpublish(""))
	for _, f := range closers {
		errs = errors.Join(errs, f())
	}
	return errors.Join(errs, clean(context.Background(), s.dir), s.lock.Close())
}

// VolumeFile is the image file that holds v, for those who look at bytes.
func (s *Substrate) VolumeFile(v azsim.Volume) string { return s.volumes.file(v) }

// CreateVolume implements azsim.Substrate.
func (s *Substrate) CreateVolume(ctx context.Context, v azsim.Volume, from azsim.Source) error {
	return s.volumes.create(ctx, v, from)
}

// DeleteVolume implements azsim.Substrate. A volume that a computer has is
// refused, as ARM refuses it.
func (s *Substrate) DeleteVolume(_ context.Context, v azsim.Volume) error { return s.volumes.delete(v) }

// requirements says all that the host lacks, at once.
func requirements() error {
	var missing error
	if os.Geteuid() != 0 {
		missing = errors.Join(missing, errors.New("needs root, for mounts, loop devices and namespaces"))
	}
	for _, tool := range []string{"runc", "ip", "partx"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = errors.Join(missing, fmt.Errorf("needs the program %s (Debian: runc, iproute2, util-linux)", tool))
		}
	}
	for _, file := range []string{"/dev/loop-control", "/dev/ptmx", "/sys/fs/cgroup"} {
		if !exists(file) {
			missing = errors.Join(missing, fmt.Errorf("needs %s", file))
		}
	}
	if missing != nil {
		return fmt.Errorf("real machines cannot run here: %w", missing)
	}
	return nil
}

// take makes the folder this process's own. The lock ends with the process.
func take(dir string) (string, *os.File, error) {
	if dir == "" {
		return "", nil, errors.New("machines need a folder: Config.Dir is empty")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return "", nil, err
	}
	lock, err := os.OpenFile(filepath.Join(abs, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return "", nil, errors.Join(fmt.Errorf("machines in %s: %w: %w", abs, ErrInUse, err), lock.Close())
	}
	return abs, lock, nil
}

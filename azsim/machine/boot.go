//go:build linux

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/ortet/ortet/azsim"
)

// Boot implements azsim.Substrate. A computer whose operating system does not
// get ready before ctx ends keeps running, as in Azure, and a repeated call
// waits on. One that cannot be started at all leaves nothing behind.
func (s *Substrate) Boot(ctx context.Context, desc azsim.Computer) error {
	c, err := s.computer(desc.ID)
	if err != nil {
		return err
	}
	c.step.Lock()
	defer c.step.Unlock()
	if c.run == nil || !c.run.running() {
		if err := s.powerOff(ctx, c); err != nil { // what a crashed run left
			return fmt.Errorf("boot %s: %w", desc.ID, err)
		}
		if err := s.place(c, desc); err != nil {
			return fmt.Errorf("boot %s: %w", desc.ID, err)
		}
		c.desc = desc
		for lun, v := range desc.DataDisks {
			c.luns[lun] = v
		}
		if err := s.powerOn(ctx, c, desc.Provision); err != nil {
			return fmt.Errorf("boot %s: %w", desc.ID, err)
		}
	}
	for {
		err := awaitReady(ctx, c.run)
		if err == nil {
			break
		}
		if !errors.Is(err, errRestart) {
			return fmt.Errorf("boot %s: %w; its console says last: %s", desc.ID, err, c.lastWords())
		}
		if err := s.settle(ctx, c, c.run); err != nil {
			return fmt.Errorf("boot %s: %w", desc.ID, err)
		}
	}
	s.log.Info("machine is up", "computer", desc.ID, "host", desc.HostName, "address", s.fabric.nth(c.n).String())
	return nil
}

// How a container's first process ends when the operating system asks the
// kernel for a restart, see reboot(2) on process id namespaces: by SIGHUP.
const restarted = 128 + int(unix.SIGHUP)

var errRestart = errors.New("the operating system restarts")

// provisionedGrace is how long units that start with the machine are waited for once
// cloud-init has ended. Azure waits for cloud-init's report only.
const provisionedGrace = 15 * time.Second

// awaitReady waits for the first process to say that everything which starts at
// boot has started, or until cloud-init's last stage ended some time ago: a unit that
// goes on starting, such as ortet-boot, does not keep a machine from being made.
func awaitReady(ctx context.Context, r *run) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var ended time.Time
	for {
		select {
		case <-r.ready:
			return nil
		case <-r.exited:
			if r.status == restarted {
				return errRestart
			}
			return fmt.Errorf("the operating system stopped with status %d", r.status)
		case <-ctx.Done():
			return fmt.Errorf("the operating system runs, but has not started all of its units: %w", ctx.Err())
		case now := <-tick.C:
			switch done := exists(fmt.Sprintf("/proc/%d/root/run/cloud-init/result.json", r.pid)); {
			case done && ended.IsZero():
				ended = now
			case done && now.Sub(ended) >= provisionedGrace:
				return nil
			}
		}
	}
}

// settle does what a hypervisor does when the guest stops by itself: after a
// restart it runs anew, after a power-off it is off. c.step is held.
func (s *Substrate) settle(ctx context.Context, c *computer, r *run) error {
	if c.run != r {
		return nil // somebody else has seen to it
	}
	if err := s.powerOff(context.WithoutCancel(ctx), c); err != nil {
		return err
	}
	if r.status != restarted {
		s.log.Info("machine stopped by itself", "computer", c.id, "status", r.status)
		return nil
	}
	s.log.Info("machine restarts", "computer", c.id)
	return s.powerOn(ctx, c, false)
}

// powerOn starts the computer from its disk. Whatever fails, nothing stays.
func (s *Substrate) powerOn(ctx context.Context, c *computer, provision bool) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.powerOff(context.WithoutCancel(ctx), c))
		}
	}()
	platform, root := filepath.Join(c.dir, "platform"), filepath.Join(c.dir, "root")
	if err := os.RemoveAll(platform); err != nil {
		return err
	}
	// Services that do not run as root read the trusted certificates.
	for _, d := range []string{"shares", "trust"} {
		if err := os.MkdirAll(filepath.Join(platform, d), 0o755); err != nil {
			return err
		}
	}
	for name, file := range s.config.Trust {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the certificates that machines trust: %w", err)
		}
		if err := os.WriteFile(filepath.Join(platform, "trust", name), content, 0o644); err != nil { // #nosec G703 -- names of the configuration
			return err
		}
	}
	if err := writeSeed(filepath.Join(platform, "seed"), c.desc); err != nil {
		return fmt.Errorf("write the provisioning seed: %w", err)
	}
	resolver := fmt.Sprintf("nameserver %s\nsearch %s\n", nameServer, domain)
	if err := os.WriteFile(filepath.Join(platform, "resolv.conf"), []byte(resolver), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(platform, "boot_id"), []byte(uuid.NewString()+"\n"), 0o444); err != nil {
		return err
	}
	// As the kernel has the firmware's: readable by root alone.
	if err := os.WriteFile(filepath.Join(platform, "product_uuid"), []byte(c.desc.VMID+"\n"), 0o400); err != nil {
		return err
	}
	disk, err := s.volumes.claim(ctx, c.desc.OSDisk, c.id)
	if err != nil {
		return err
	}
	if err := s.showDisks(ctx, c, filepath.Join(platform, "dev"), disk); err != nil {
		return err
	}
	if err := s.volumes.mount(c.desc.OSDisk, root); err != nil {
		return err
	}
	if provision {
		if err := leaveEnvironment(root, c.desc); err != nil {
			return fmt.Errorf("hand over the custom data: %w", err)
		}
	}
	if err := s.fabric.connect(ctx, c.n); err != nil {
		return err
	}
	r := &run{
		container: fmt.Sprintf("%s-%d", s.fabric.prefix, c.n),
		ready:     make(chan struct{}),
		exited:    make(chan struct{}),
	}
	ns := s.fabric.machineNamespace(c.n)
	if err := r.serveIMDS(ns, c.desc.IMDS); err != nil {
		return errors.Join(err, r.close())
	}
	if err := r.awaitNotice(ns); err != nil {
		return errors.Join(err, r.close())
	}
	spec := frame{
		Root:       root,
		Platform:   platform,
		Shares:     s.sharesDir(),
		Namespace:  filepath.Join(netnsFolder, ns),
		CgroupPath: s.cgroup(c),
	}.spec()
	bundle := filepath.Join(c.dir, "bundle")
	if err := writeBundle(bundle, spec); err != nil {
		return errors.Join(err, r.close())
	}
	if err := s.start(ctx, c, r, bundle); err != nil {
		return errors.Join(err, r.close())
	}
	c.run = r
	return nil
}

func writeBundle(dir string, spec ociSpec) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	body, err := json.MarshalIndent(spec, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), body, 0o600)
}

// cgroup is where the computer's control groups are, beneath each hierarchy.
func (s *Substrate) cgroup(c *computer) string {
	return fmt.Sprintf("/%s/%d", s.fabric.prefix, c.n)
}

// start runs the container, whose root is pivoted to (the host's must not be a
// ramfs): a machine that kept the host's mounts beneath would hold the disks of
// all machines that ran when it started. It is a child, whose end and reason we
// so get to know. start returns when its first process is there.
func (s *Substrate) start(ctx context.Context, c *computer, r *run, bundle string) error {
	read, terminal, err := openTerminal()
	if err != nil {
		return err
	}
	pidFile := filepath.Join(bundle, "pid")
	if err := removeIfThere(pidFile); err != nil {
		return errors.Join(err, read.Close(), terminal.Close())
	}
	cmd := exec.Command("runc", "--root", filepath.Join(s.dir, "runc"), "--log", filepath.Join(bundle, "runc.log"),
		"run", "--bundle", bundle, "--pid-file", pidFile, r.container)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	if cerr := terminal.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start runc: %w", err), read.Close())
	}
	copied := make(chan struct{})
	go func() {
		// Reading ends with an error when the last process has closed its end.
		if _, err := io.Copy(c.console, read); err != nil && !errors.Is(err, unix.EIO) {
			s.log.Warn("console lost", "computer", c.id, "error", err)
		}
		close(copied)
	}()
	go func() {
		_ = cmd.Wait() // an exit status other than 0 is how machines end
		<-copied
		_ = read.Close()
		r.status = cmd.ProcessState.ExitCode()
		close(r.exited)
		c.step.Lock()
		defer c.step.Unlock()
		if err := s.settle(context.WithoutCancel(ctx), c, r); err != nil {
			s.log.Error("machine stopped by itself and cannot be seen to", "computer", c.id, "error", err)
		}
	}()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if r.pid = readPID(pidFile); r.pid != 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.exited:
			log, _ := os.ReadFile(filepath.Join(bundle, "runc.log"))
			return fmt.Errorf("runc could not start the machine (status %d): %s", r.status, strings.TrimSpace(string(log)))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readPID returns 0 as long as the file is not written.
func readPID(file string) int {
	n, err := readInt(file)
	if err != nil {
		return 0
	}
	return int(n)
}

// serveIMDS answers at the metadata service's address in the machine's network.
func (r *run) serveIMDS(namespace string, handler http.Handler) error {
	if handler == nil {
		return nil
	}
	l, err := listenIn(namespace, net.JoinHostPort(imdsAddress.String(), "80"))
	if err != nil {
		return fmt.Errorf("serve the instance metadata: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	r.closers = append(r.closers, server)
	go func() { _ = server.Serve(l) }() // ends when it is closed
	return nil
}

// awaitNotice listens for what the first process reports, by systemd's protocol
// for notifying a container's host.
func (r *run) awaitNotice(namespace string) error {
	var conn *net.UnixConn
	err := within(namespace, func() (err error) {
		conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notifySocket, Net: "unixgram"})
		return err
	})
	if err != nil {
		return fmt.Errorf("listen for the machine's report: %w", err)
	}
	r.closers = append(r.closers, conn)
	go func() {
		said := false
		for buf := make([]byte, 4096); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			for line := range strings.Lines(string(buf[:n])) {
				if strings.TrimSpace(line) == "READY=1" && !said {
					said = true
					close(r.ready)
				}
			}
		}
	}()
	return nil
}

func (r *run) close() error {
	var errs error
	for _, c := range r.closers {
		errs = errors.Join(errs, c.Close())
	}
	r.closers = nil
	return errs
}

// lastWords is the end of the console, for an error.
func (c *computer) lastWords() string {
	tail, err := c.console.tail()
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(tail)), "\n")
	return strings.TrimSpace(strings.Join(lines[max(0, len(lines)-5):], " | "))
}

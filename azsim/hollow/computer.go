package hollow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ortet/ortet/azsim"
)

// running is one boot of a computer: from Boot to the end of its power.
type running struct {
	substrate *Substrate
	computer  azsim.Computer
	console   *console
	tree      tree
	index     int
	bootID    string
	bootedAt  time.Time
	machineID string // set by boot
	nodeName  string // set by boot: what its kubelet will call itself
	listener  net.Listener

	ctx    context.Context // ends with the power
	cancel context.CancelFunc
	lived  chan struct{} // closed when the kubelet's part has ended

	mu       sync.Mutex
	stopping bool // no pod is started any more
	joined   bool
	// imagesChanged says that the node's status is to be reported for them.
	imagesChanged bool
	nodeUID       types.UID
	pods          map[types.UID]*pod
	podIPs        map[byte]bool
	programs      sync.WaitGroup
}

// address is where the node's kubelet is reached: its own, within loopback,
// because that needs no network.
func (r *running) address() string { return loopback(r.index).String() }

func loopback(index int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(66 + index/62500%60), byte(index / 250 % 250), byte(index%250 + 1)})
}

// hostIP is the address that the node's pods see, since Kubernetes accepts no
// loopback address behind a Service.
func (r *running) hostIP() string {
	return fmt.Sprintf("10.%d.%d.%d", 240+r.index/62500%10, r.index/250%250, r.index%250+4)
}

// Boot implements azsim.Substrate. The node joins the cluster afterwards by
// itself, or fails to.
func (s *Substrate) Boot(ctx context.Context, wanted azsim.Computer) error {
	if err := validate(wanted); err != nil {
		return err
	}
	c, err := s.computer(wanted.ID)
	if err != nil {
		return err
	}
	c.acting.Lock()
	defer c.acting.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	current := c.run
	s.mu.Unlock()
	if current != nil {
		if current.computer.OSDisk == wanted.OSDisk && current.computer.VMID == wanted.VMID {
			return nil
		}
		if err := s.halt(c); err != nil { // another disk: a reimage
			return err
		}
	}
	root := tree(s.volumeDir(wanted.OSDisk))
	if _, err := os.Stat(string(root)); err != nil {
		return fmt.Errorf("boot %s: OS disk %s: %w", wanted.ID, wanted.OSDisk, err)
	}
	r := &running{
		substrate: s, computer: wanted, console: &c.console, tree: root, index: c.index,
		bootID: uuid.NewString(), bootedAt: time.Now(),
		lived: make(chan struct{}), pods: map[types.UID]*pod{}, podIPs: map[byte]bool{},
	}
	if err := r.boot(); err != nil {
		c.console.printf("Kernel panic - not syncing: %s", err)
		return fmt.Errorf("boot %s: %w", wanted.ID, err)
	}
	disks := map[int32]azsim.Volume{}
	for lun, v := range wanted.DataDisks {
		if err := r.plug(lun, v); err != nil {
			return errors.Join(fmt.Errorf("boot %s: %w", wanted.ID, err), s.unmount(root))
		}
		disks[lun] = v
	}
	if err := os.MkdirAll(r.scratch(), 0o700); err != nil {
		return err
	}
	if s.client != nil {
		if err := s.kubelet.listen(r); err != nil {
			return errors.Join(fmt.Errorf("boot %s: %w", wanted.ID, err), s.unmount(root))
		}
	}
	r.ctx, r.cancel = context.WithCancel(s.ctx)
	s.mu.Lock()
	closed := s.closed
	if !closed {
		c.disks = disks
		c.run, c.last = r, r
	}
	s.mu.Unlock()
	if closed {
		r.cancel()
		return errors.Join(errors.New("hollow instances are closed"), s.unmount(root))
	}
	go func() {
		defer close(r.lived)
		if s.client != nil {
			r.live(r.ctx)
		}
	}()
	return nil
}

// Shutdown implements azsim.Substrate.
func (s *Substrate) Shutdown(ctx context.Context, id string, graceful bool) error {
	s.mu.Lock()
	c, ok := s.computers[id]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	c.acting.Lock()
	defer c.acting.Unlock()
	s.mu.Lock()
	r := c.run
	s.mu.Unlock()
	if r == nil {
		return nil
	}
	if graceful {
		r.shutDownInOrder(ctx)
	}
	return s.halt(c)
}

// Remove implements azsim.Substrate. Its Node is deleted, as a cloud provider's
// node controller does for an instance that is gone.
func (s *Substrate) Remove(ctx context.Context, id string) error {
	s.mu.Lock()
	c, ok := s.computers[id]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	c.acting.Lock()
	defer c.acting.Unlock()
	s.mu.Lock()
	last := c.last
	s.mu.Unlock()
	if err := s.halt(c); err != nil {
		return err
	}
	if err := os.RemoveAll(s.scratchOf(id)); err != nil {
		return err
	}
	// What is off when it is removed has a Node too.
	if err := s.deleteNode(ctx, c, last); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.computers, id)
	return nil
}

// halt takes the power away. The caller holds c.acting.
func (s *Substrate) halt(c *computer) error {
	s.mu.Lock()
	r := c.run
	c.run = nil
	if r != nil {
		s.forgetNode(r)
	}
	s.mu.Unlock()
	if r == nil {
		return nil
	}
	r.cancel()
	<-r.lived
	r.killPrograms()
	r.programs.Wait()
	var errs []error
	if r.listener != nil {
		errs = append(errs, ignoreClosed(r.listener.Close()))
	}
	r.console.printf("[%12.6f] reboot: Power down", time.Since(r.bootedAt).Seconds())
	return errors.Join(append(errs, s.unmount(r.tree))...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// shutDownInOrder does what systemd and a kubelet with graceful node shutdown do:
// the node says that it goes, its pods end, and what cannot be said is not
// waited for, since the power goes in any case.
func (r *running) shutDownInOrder(ctx context.Context) {
	r.console.printf("[%12.6f] systemd-shutdown[1]: Sending SIGTERM to remaining processes...", time.Since(r.bootedAt).Seconds())
	// systemd writes the machine-id out when it was emptied under way.
	if _, err := r.tree.commitMachineID(); err != nil {
		r.console.printf("systemd: machine-id: %s", err)
	}
	if r.substrate.client == nil || !r.hasJoined() {
		return
	}
	if err := r.report(ctx, false, "node is shutting down"); err != nil {
		r.console.printf("kubelet: report shutdown: %s", err)
	}
	if err := r.endPods(ctx); err != nil {
		r.console.printf("kubelet: end pods: %s", err)
	}
}

// scratch holds what is not on any disk: pods' other volumes.
func (r *running) scratch() string { return r.substrate.scratchOf(r.computer.ID) }

func (s *Substrate) scratchOf(id string) string {
	return filepath.Join(s.config.Dir, "computers", filepath.Base(s.volumeDir(azsim.Volume(id))))
}

func (r *running) hasJoined() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.joined
}

// primary reports whether r is the one that runs the pods of its node name: two
// computers may have registered under the same.
func (s *Substrate) primary(name string) *running {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all := s.nodes[name]; len(all) > 0 {
		return all[0]
	}
	return nil
}

// adoptNode makes r answer for the pods of its name.
func (s *Substrate) adoptNode(r *running) {
	s.mu.Lock()
	s.nodes[r.nodeName] = append(s.nodes[r.nodeName], r)
	s.mu.Unlock()
	objects, err := s.pods.ByIndex(byNode, r.nodeName)
	if err != nil {
		s.log.Error("index of pods", "error", err)
		return
	}
	for _, object := range objects {
		if p, ok := object.(*corev1.Pod); ok {
			s.queue.Add(podKey(p))
		}
	}
}

// forgetNode undoes adoptNode. The caller holds s.mu.
func (s *Substrate) forgetNode(r *running) {
	all := s.nodes[r.nodeName]
	for i, one := range all {
		if one == r {
			s.nodes[r.nodeName] = append(all[:i:i], all[i+1:]...)
		}
	}
	if len(s.nodes[r.nodeName]) == 0 {
		delete(s.nodes, r.nodeName)
	}
}

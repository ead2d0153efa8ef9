package source

import (
	"bytes"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// Sources of spans that are found in other programs' files.
const (
	sourceClock      = "clock"
	sourceKernel     = "kernel"
	sourceNetwork    = "network"
	sourceAPT        = "apt"
	sourceContainerd = "containerd"
	sourceKubelet    = "kubelet"
	sourceOrtetBoot  = "ortet-boot"
	ortetBootUnit    = "ortet-boot.service"
)

// maxMarks bounds what is kept open at once.
const maxMarks = 256

// marks knows messages of the programs whose work, or whose waiting for
// something, falls into the gaps between units.
type marks struct {
	carrier map[string]wire.Micros // of network interfaces: since when they have a link
	pulls   map[string]wire.Micros // of images: since when they are pulled
	resize  map[string]wire.Micros // of filesystems
	lock    wire.BootSpan          // of dpkg's or apt's lock, that is waited for
	reload  wire.Micros            // since when systemd reloads
	kubelet map[string]wire.Micros // since when
	once    map[string]bool        // moments of which only the first counts
	step    wire.BootSpan          // of ortet-boot, that goes on
}

// open notes when something began.
func open(m *map[string]wire.Micros, name string, at wire.Micros) {
	if *m == nil {
		*m = map[string]wire.Micros{}
	}
	if _, ok := (*m)[name]; !ok && len(*m) < maxMarks {
		(*m)[name] = at
	}
}

// first reports whether a moment is seen for the first time.
func (m *marks) first(name string) bool {
	if m.once == nil {
		m.once = map[string]bool{}
	}
	if m.once[name] || len(m.once) >= maxMarks {
		return false
	}
	m.once[name] = true
	return true
}

func (m *marks) take(b *boot, e *entry) {
	if len(e.message) == 0 {
		return
	}
	var s wire.BootSpan
	s.Clock, s.Grain = wire.ClockMonotonic, millisecond
	switch string(e.ident) {
	case "kernel":
		m.kernel(b, s, e)
	case "systemd":
		m.manager(b, s, e)
	case "systemd-networkd", "dhclient", "NetworkManager", "dhcpcd":
		m.network(b, s, e)
	case "containerd":
		m.pull(b, s, e.message, e.at())
	case "kubelet":
		m.kubeletSays(b, s, e.message, e.at())
	default:
		m.ortetBoot(b, s, e)
		m.aptLock(b, s, e)
	}
}

// ortetBoot knows the steps of ortet-boot.service on machines of ortet cluster: boot.py runs in other
// units too, and anybody may send such a line. Each step goes on until the next, and k3s comes after
// the last:
//
//	ortet-boot: waiting for the NVIDIA driver: extension NvidiaGpuDriverLinux has reported nothing yet
func (m *marks) ortetBoot(b *boot, s wire.BootSpan, e *entry) {
	text, ok := bytes.CutPrefix(e.message, []byte("ortet-boot: "))
	if !ok || m.once["booted"] || string(e.speaker) != ortetBootUnit {
		return
	}
	name, problem, _ := strings.Cut(string(text), ": ")
	if name = word(name); name == m.step.Name {
		m.step.Detail = problem
		return
	}
	if m.step.Name != "" {
		m.step.End = e.at()
		b.span(m.step)
	}
	m.step = wire.BootSpan{}
	if strings.HasPrefix(name, "starting k3s") {
		_ = m.first("booted")
		return
	}
	s.Source, s.Name, s.Unit, s.Start, s.Detail = sourceOrtetBoot, name, ortetBootUnit, e.at(), problem
	m.step = s
}

func (m *marks) kernel(b *boot, s wire.BootSpan, e *entry) {
	s.Source = sourceKernel
	if bytes.Contains(e.message, []byte("crng init done")) && m.first("crng-init") {
		s.Name, s.Start, s.End = "crng-init", e.at(), e.at()
		b.span(s)
		return
	}
	// "EXT4-fs (sda1): resizing filesystem from 7834107 to 32510203 blocks"
	rest, ok := bytes.CutPrefix(e.message, []byte("EXT4-fs ("))
	if !ok {
		return
	}
	device, rest, ok := bytes.Cut(rest, []byte("): "))
	if !ok || len(device) > 64 {
		return
	}
	switch {
	case bytes.HasPrefix(rest, []byte("resizing filesystem")):
		open(&m.resize, string(device), e.at())
	case bytes.HasPrefix(rest, []byte("resized filesystem")):
		if from, ok := m.resize[string(device)]; ok {
			delete(m.resize, string(device))
			s.Name, s.Start, s.End, s.Detail = "ext4-resize", from, e.at(), string(e.message)
			b.span(s)
		}
	}
}

// manager knows systemd's reloading, in which no job runs.
func (m *marks) manager(b *boot, s wire.BootSpan, e *entry) {
	s.Source, s.Name = sourceSystemd, "reload"
	text := e.message
	switch {
	case bytes.Equal(text, []byte("Reloading.")), bytes.HasPrefix(text, []byte("Reloading requested")), bytes.HasPrefix(text, []byte("Reloading...")):
		if m.reload > 0 && e.at()-m.reload > second { // an older systemd does not log when it was done
			s.Start, s.End = m.reload, m.reload
			b.span(s)
			m.reload = 0
		}
		if m.reload == 0 {
			m.reload = e.at()
		}
	case bytes.HasPrefix(text, []byte("Reloading finished in ")):
		took, ok := timespan(strings.TrimRight(string(text[len("Reloading finished in "):]), "."))
		if !ok {
			return
		}
		s.Start, s.End = max(e.at()-took, 0), e.at()
		b.span(s)
		m.reload = 0
	}
}

func (m *marks) network(b *boot, s wire.BootSpan, e *entry) {
	s.Source = sourceNetwork
	text := string(e.message)
	if len(text) > 1024 {
		return
	}
	if name, rest, ok := strings.Cut(text, ": "); ok && isInterface(name) {
		switch {
		case strings.HasPrefix(rest, "Gained carrier"), strings.HasPrefix(rest, "Link UP"):
			open(&m.carrier, name, e.at())
		case strings.HasPrefix(rest, "Lost carrier"):
			delete(m.carrier, name)
		case strings.HasPrefix(rest, "DHCPv4 address "), strings.HasPrefix(rest, "leased "):
			m.leased(b, s, name, text, e.at())
		}
		return
	}
	switch {
	case strings.HasPrefix(text, "DHCPDISCOVER on "), strings.HasPrefix(text, "DHCPREQUEST "):
		if _, rest, ok := strings.Cut(text, " on "); ok {
			if name, _, _ := strings.Cut(rest, " "); isInterface(name) {
				open(&m.carrier, name, e.at())
			}
		}
	case strings.HasPrefix(text, "bound to "):
		// dhclient does not log the interface: one waits, or it is not known.
		if len(m.carrier) == 1 {
			for name := range m.carrier {
				m.leased(b, s, name, text, e.at())
			}
		}
	}
}

func (m *marks) leased(b *boot, s wire.BootSpan, name, text string, at wire.Micros) {
	if !m.first("dhcp/" + name) {
		return // a renewal
	}
	s.Name, s.Start, s.End, s.Detail = "dhcp/"+name, at, at, text
	if from, ok := m.carrier[name]; ok && from <= at {
		s.Start = from
	}
	delete(m.carrier, name)
	b.span(s)
}

func isInterface(s string) bool {
	if s == "" || len(s) > 15 {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '/' || c == ':' {
			return false
		}
	}
	return true
}

// aptLock knows waits for the locks of apt and dpkg:
//
//	Waiting for cache lock: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812 (apt-get)... 5s
func (m *marks) aptLock(b *boot, s wire.BootSpan, e *entry) {
	if !bytes.Contains(e.message, []byte("ould not get lock /var/lib/")) {
		return
	}
	at, text := e.at(), string(e.message)
	if m.lock.Name != "" && at-m.lock.End <= 30*second {
		m.lock.End = max(m.lock.End, at)
		return
	}
	if m.lock.Name != "" {
		b.span(m.lock)
	}
	s.Source, s.Name, s.Start, s.End, s.Detail = sourceAPT, "lock", at, at, text
	if _, waited, ok := strings.Cut(text, "... "); ok {
		if took, ok := timespan(strings.TrimSpace(waited)); ok && took <= at {
			s.Start = at - took
		}
	}
	m.lock = s
}

// pull knows containerd's lines of image pulls, in either of its layouts.
func (m *marks) pull(b *boot, s wire.BootSpan, text []byte, at wire.Micros) {
	image, what, took := pullLine(text)
	if image == "" {
		return
	}
	s.Source, s.Name = sourceContainerd, "pull/"+untagged(word(image))
	if what == pullBegins {
		open(&m.pulls, image, at)
		return
	}
	from, ok := m.pulls[image]
	if !ok {
		if took == 0 || took > at {
			return // the line that it ended with again, or of one that is not in the log
		}
		from = at - took
		if !m.first("pulled/" + image) {
			return
		}
	}
	delete(m.pulls, image)
	_ = m.first("pulled/" + image)
	s.Start, s.End, s.Detail = from, at, image
	if what == pullFails {
		s.Result = "failed"
	}
	b.span(s)
}

// kubeletSays knows the kubelet's start, its registration and its node's being Ready.
func (m *marks) kubeletSays(b *boot, s wire.BootSpan, text []byte, at wire.Micros) {
	s.Source, s.Unit = sourceKubelet, "kubelet.service"
	switch {
	case bytes.Contains(text, []byte(`"Kubelet version"`)):
		if m.first("start") {
			s.Name, s.Start, s.End = "start", at, at
			b.span(s)
		}
	case bytes.Contains(text, []byte(`"Attempting to register node"`)):
		open(&m.kubelet, "register", at)
	case bytes.Contains(text, []byte(`"Successfully registered node"`)):
		if from, ok := m.kubelet["register"]; ok && m.first("register") {
			s.Name, s.Start, s.End = "register", from, at
			b.span(s)
		}
	case bytes.Contains(text, []byte(`event="NodeReady"`)), bytes.Contains(text, []byte("node status as it just became ready")):
		if m.first("ready") {
			s.Name, s.Start, s.End = "ready", at, at
			b.span(s)
		}
	case bytes.Contains(text, []byte(`"Waiting for client certificate to be issued"`)), bytes.Contains(text, []byte("Rotating certificates")):
		if m.first("certificate") {
			s.Name, s.Start, s.End = "certificate", at, at
			b.span(s)
		}
	}
}

// done closes what has not ended; last is the last moment of the boot that is
// known.
func (m *marks) done(b *boot, last wire.Micros) {
	s := wire.BootSpan{Clock: wire.ClockMonotonic, Grain: millisecond}
	m.close(b, s, last)
}

func (m *marks) close(b *boot, s wire.BootSpan, last wire.Micros) {
	if m.lock.Name != "" {
		b.span(m.lock)
		m.lock = wire.BootSpan{}
	}
	if m.step.Name != "" {
		m.step.End, m.step.Open = max(last, m.step.Start), true
		b.span(m.step)
	}
	if m.reload > 0 {
		r := s
		r.Source, r.Name, r.Start, r.End = sourceSystemd, "reload", m.reload, m.reload
		b.span(r)
	}
	for _, image := range keys(m.pulls) {
		p := s
		p.Source, p.Name, p.Open, p.Detail = sourceContainerd, "pull/"+untagged(word(image)), true, image
		p.Start, p.End = m.pulls[image], max(last, m.pulls[image])
		b.span(p)
	}
	for _, device := range keys(m.resize) {
		p := s
		p.Source, p.Name, p.Open, p.Detail = sourceKernel, "ext4-resize", true, device
		p.Start, p.End = m.resize[device], max(last, m.resize[device])
		b.span(p)
	}
}

func keys(m map[string]wire.Micros) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

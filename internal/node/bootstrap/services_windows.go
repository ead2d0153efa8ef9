package bootstrap

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// serviceWatch watches services by the service control manager's notifications.
// NotifyServiceStatusChange is used, which is in winsvc.h, and not the newer
// SubscribeServiceChangeNotifications, which is in a private header and leads into
// callbacks on Windows's own threads. Its notifications come to the thread that asked for
// them, while it waits alertably: so one goroutine keeps a thread for itself. Where
// notifications are refused, services are polled once a second.
//
// A service's handle stays open while it is watched. A deleted service remains until its
// last handle is closed, so it is closed on that notification.
type serviceWatch struct {
	names []string
	poke  func()
	log   *slog.Logger

	event windows.Handle // set to have the thread end
	first chan struct{}  // closed after the first observation
	done  chan struct{}

	mu     sync.Mutex
	ending bool
	units  map[string]unitSeen // nil before the first observation
}

// firstLook bounds the first observation: without it the kubelet's presence is unknown.
const firstLook = 5 * time.Second

// watchUnits watches Windows services; none where the node's root is another than this
// system's. It returns after the first observation.
func watchUnits(o Options, names []string, poke func(), log *slog.Logger) unitSource {
	w := &serviceWatch{names: names, poke: poke, log: log, first: make(chan struct{}), done: make(chan struct{})}
	if !strings.EqualFold(o.Root, DefaultRoot()) {
		close(w.done)
		return w
	}
	event, err := windows.CreateEvent(nil, 0, 0, nil)
	if err != nil {
		log.Error("services are not watched", "error", fmt.Errorf("making an event: %w", err))
		close(w.done)
		return w
	}
	w.event = event
	go w.run()
	late := time.NewTimer(firstLook)
	defer late.Stop()
	select {
	case <-w.first:
	case <-late.C:
		log.Warn("the service control manager does not answer; services are not known yet")
	}
	return w
}

func (w *serviceWatch) look() (map[string]unitSeen, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.units), w.units != nil
}

// failed is none: services that end with a code of their own are usual on Windows, and no
// evidence about the boot.
func (w *serviceWatch) failed() []unitSeen { return nil }

// retry does nothing: the service control manager is there before we are.
func (w *serviceWatch) retry() {}

func (w *serviceWatch) close() {
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	if w.event != 0 {
		_ = windows.SetEvent(w.event) // it is ours, and open
	}
	<-w.done
	if w.event != 0 {
		_ = windows.CloseHandle(w.event)
	}
}

// run reads all services whenever one changed. The thread is released when all handles are
// closed and nothing is to be delivered to it any more.
func (w *serviceWatch) run() {
	defer close(w.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var m manager
	defer m.close()
	services := make([]*service, len(w.names))
	for i, name := range w.names {
		services[i] = &service{name: name}
	}
	defer func() {
		for _, s := range services {
			s.close()
		}
	}()
	begun, told := false, false
	for {
		now := time.Now()
		units, next, err := m.look(services, now)
		if err != nil {
			// What was known is kept: it may be one call that failed.
			if !told {
				w.log.Warn("looking at services every second, since not all can be watched", "error", err)
			}
			told, next = true, soonest(next, now.Add(blindEvery))
		}
		if units != nil {
			w.set(units)
		}
		if !begun {
			begun = true
			close(w.first)
		}
		if m.noticed(services) {
			next = now // it came while others were closed
		}
		if w.wait(next) {
			return
		}
	}
}

func (w *serviceWatch) set(units map[string]unitSeen) {
	w.mu.Lock()
	same := w.units != nil && maps.Equal(units, w.units)
	w.units = units
	w.mu.Unlock()
	if !same {
		w.poke()
	}
}

// wait waits for a notification, for close, or until next, which is never where it is zero,
// and reports whether it is to end.
func (w *serviceWatch) wait(next time.Time) bool {
	wait := uint32(windows.INFINITE)
	if !next.IsZero() {
		wait = uint32(min(max(time.Until(next), time.Millisecond), time.Hour) / time.Millisecond)
	}
	// What the call returns does not matter: whatever it was, it is looked again.
	_, _, _ = windows.NewLazySystemDLL("kernel32.dll").NewProc("WaitForSingleObjectEx").Call(uintptr(w.event), uintptr(wait), 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ending
}

// soonest is the earlier of two times, of which zero is never.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// serviceNotice is what the service control manager fills in when it notifies. It lives
// on the heap for as long as the handle does that it was given with.
type serviceNotice struct {
	windows.SERVICE_NOTIFY
	came bool
}

// noticed is called on the watching thread while it waits.
func noticed(n *serviceNotice) uintptr {
	n.came = true
	return 0
}

func newServiceNotice() *serviceNotice {
	return &serviceNotice{SERVICE_NOTIFY: windows.SERVICE_NOTIFY{Version: windows.SERVICE_NOTIFY_STATUS_CHANGE, NotifyCallback: windows.NewCallback(noticed)}}
}

// manager is the service control manager, and what it is to notify of itself.
type manager struct {
	handle  windows.Handle
	created *serviceNotice // nil while not requested
}

// open connects, and requests notifications of services that are created.
func (m *manager) open() error {
	if m.handle == 0 {
		h, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT|windows.SC_MANAGER_ENUMERATE_SERVICE)
		if err != nil {
			return fmt.Errorf("connecting to the service control manager: %w", err)
		}
		m.handle = h
	}
	if n := m.created; n != nil && n.came {
		if n.ServiceNames != nil {
			_, _ = windows.LocalFree(windows.Handle(unsafe.Pointer(n.ServiceNames))) // #nosec G103 -- Windows allocated it
		}
		m.created = nil
	}
	if m.created == nil {
		n := newServiceNotice()
		if err := windows.NotifyServiceStatusChange(m.handle, windows.SERVICE_NOTIFY_CREATED, &n.SERVICE_NOTIFY); err != nil {
			if errors.Is(err, windows.ERROR_SERVICE_NOTIFY_CLIENT_LAGGING) {
				m.close() // and reconnect
			}
			return fmt.Errorf("asking to be told of new services: %w", err)
		}
		m.created = n
	}
	return nil
}

func (m *manager) close() {
	if m.handle != 0 {
		_ = windows.CloseServiceHandle(m.handle)
		m.handle = 0
	}
	windows.SleepEx(0, true) // what is under way comes now, while its memory is ours
	runtime.KeepAlive(m.created)
}

// noticed reports whether a notification is unread.
func (m *manager) noticed(services []*service) bool {
	if m.created != nil && m.created.came {
		return true
	}
	return slices.ContainsFunc(services, func(s *service) bool { return s.asked != nil && s.asked.came })
}

// look returns all units, and when to poll where no notification comes. An error means that
// some notifications are missing; units is nil where nothing could be read.
func (m *manager) look(services []*service, now time.Time) (units map[string]unitSeen, next time.Time, err error) {
	err = m.open()
	if m.handle == 0 {
		return nil, next, err
	}
	problems := []error{}
	units = map[string]unitSeen{}
	missing := false
	for _, s := range services {
		if err := s.look(m.handle, now); err != nil {
			problems = append(problems, fmt.Errorf("service %s: %w", s.name, err))
		}
		u := s.history.unit(s.name, s.recovery)
		if s.name == cloudbaseInit {
			u.since, u.ended = s.started, s.history.ended
			if until, may := s.history.mayReboot(now); may {
				u.Active, u.Sub = "deactivating", "stop"
				next = soonest(next, until)
			}
		}
		missing = missing || u.Missing
		units[s.name] = u
	}
	if err != nil && missing {
		problems = append(problems, err)
	}
	return units, next, errors.Join(problems...)
}

// service is one that is watched.
type service struct {
	name     string
	handle   windows.Handle // 0 while there is no such service
	asked    *serviceNotice // nil while no notification is requested
	history  serviceHistory
	recovery recovery
	timed    uint32    // its last process
	started  time.Time // when that was started, zero where that is not known
}

// rereads bounds how often a service is looked at that changes meanwhile.
const rereads = 4

// look reads the service's state, and requests a notification of its change. An error means
// that none will come.
func (s *service) look(scm windows.Handle, now time.Time) error {
	if n := s.asked; n != nil && n.came {
		s.asked = nil
		if then, ok := statusOf(&n.ServiceStatus); ok && n.NotificationStatus == 0 {
			s.history = s.history.next(then, now) // it may be past already
		}
		if n.NotificationStatus != 0 || n.NotificationTriggered&windows.SERVICE_NOTIFY_DELETE_PENDING != 0 {
			s.close() // it is being deleted, or we lag behind: open it again
		}
	}
	for range rereads {
		if err := s.open(scm); err != nil || s.handle == 0 {
			s.history = s.history.next(serviceStatus{}, now)
			return err
		}
		status, err := s.status()
		if err != nil {
			s.close()
			return fmt.Errorf("asking how it is: %w", err)
		}
		s.history = s.history.next(status, now)
		if pid := status.pid; pid != 0 && pid != s.timed {
			s.timed, s.started = pid, startOf(pid)
		}
		if status.state == serviceStopped {
			s.history.auto, s.recovery = s.config() // installers set these last
		}
		if s.asked != nil {
			return nil
		}
		n := newServiceNotice()
		// The state that it is in needs no notification.
		mask := uint32(everyState) &^ (1 << (status.state - 1))
		if err := windows.NotifyServiceStatusChange(s.handle, mask, &n.SERVICE_NOTIFY); err != nil {
			s.close() // we lag behind, or it is being deleted: open it again
			return fmt.Errorf("asking to be told of its changes: %w", err)
		}
		s.asked = n
		// It may have changed before that request, into a state without notification: a
		// handle requests one set of states only.
		again, err := s.status()
		if err == nil && again.state == status.state {
			return nil
		}
		s.close()
	}
	return errors.New("it changes faster than it can be looked at")
}

// startOf is when a process started; zero where that cannot be learned.
func startOf(pid uint32) time.Time {
	p, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return time.Time{}
	}
	defer func() { _ = windows.CloseHandle(p) }()
	var created, ended, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(p, &created, &ended, &kernel, &user); err != nil {
		return time.Time{}
	}
	return time.Unix(0, created.Nanoseconds())
}

// everyState are the states that are notified of, and that it is to be deleted.
const everyState = windows.SERVICE_NOTIFY_STOPPED | windows.SERVICE_NOTIFY_START_PENDING | windows.SERVICE_NOTIFY_STOP_PENDING |
	windows.SERVICE_NOTIFY_RUNNING | windows.SERVICE_NOTIFY_CONTINUE_PENDING | windows.SERVICE_NOTIFY_PAUSE_PENDING |
	windows.SERVICE_NOTIFY_PAUSED | windows.SERVICE_NOTIFY_DELETE_PENDING

// open opens the service where it is there.
func (s *service) open(scm windows.Handle) error {
	if s.handle != 0 {
		return nil
	}
	name, err := windows.UTF16PtrFromString(s.name)
	if err != nil {
		return err
	}
	h, err := windows.OpenService(scm, name, windows.SERVICE_QUERY_STATUS|windows.SERVICE_QUERY_CONFIG)
	if errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) || errors.Is(err, windows.ERROR_INVALID_NAME) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening it: %w", err)
	}
	s.handle = h
	s.history.auto, s.recovery = s.config()
	return nil
}

func (s *service) close() {
	if s.handle != 0 {
		_ = windows.CloseServiceHandle(s.handle)
		s.handle = 0
	}
	windows.SleepEx(0, true) // what is under way comes now, while its memory is ours
	runtime.KeepAlive(s.asked)
	s.asked = nil
}

func (s *service) status() (serviceStatus, error) {
	var p windows.SERVICE_STATUS_PROCESS
	var need uint32
	// #nosec G103 -- the call fills in this structure
	if err := windows.QueryServiceStatusEx(s.handle, windows.SC_STATUS_PROCESS_INFO, (*byte)(unsafe.Pointer(&p)), uint32(unsafe.Sizeof(p)), &need); err != nil {
		return serviceStatus{}, err
	}
	status, ok := statusOf(&p)
	if !ok {
		return serviceStatus{}, fmt.Errorf("it is in state %d, which is unknown", p.CurrentState)
	}
	return status, nil
}

// statusOf converts Windows' status; false where its state is unknown.
func statusOf(p *windows.SERVICE_STATUS_PROCESS) (serviceStatus, bool) {
	state := serviceState(p.CurrentState)
	return serviceStatus{state: state, exit: p.Win32ExitCode, specific: p.ServiceSpecificExitCode, pid: p.ProcessId},
		state >= serviceStopped && state <= servicePaused
}

// config returns whether Windows starts the service by itself, and what it does when it
// ends. What cannot be read counts as not so.
func (s *service) config() (auto bool, r recovery) {
	const most = 8 << 10 // bytes, by the documentation of the calls
	buf := make([]uint64, most/8)
	at := unsafe.Pointer(&buf[0]) // #nosec G103 -- the calls fill in structures that point into it
	var need uint32
	if err := windows.QueryServiceConfig(s.handle, (*windows.QUERY_SERVICE_CONFIG)(at), most, &need); err == nil {
		auto = (*windows.QUERY_SERVICE_CONFIG)(at).StartType == windows.SERVICE_AUTO_START
	}
	if err := windows.QueryServiceConfig2(s.handle, windows.SERVICE_CONFIG_FAILURE_ACTIONS, (*byte)(at), most, &need); err == nil {
		actions := (*windows.SERVICE_FAILURE_ACTIONS)(at)
		if actions.Actions != nil {
			for _, a := range unsafe.Slice(actions.Actions, min(actions.ActionsCount, 64)) { // #nosec G103 -- as above
				r.restarts = append(r.restarts, a.Type == windows.SC_ACTION_RESTART)
			}
		}
	}
	if err := windows.QueryServiceConfig2(s.handle, windows.SERVICE_CONFIG_FAILURE_ACTIONS_FLAG, (*byte)(at), most, &need); err == nil {
		r.always = (*windows.SERVICE_FAILURE_ACTIONS_FLAG)(at).FailureActionsOnNonCrashFailures != 0
	}
	return auto, r
}

package hollow

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A container whose command is one of Config.Programs runs as a process of ours
// without a mount namespace, since that would need privileges. What its mounts
// would show is reached by rewriting names: a word of its command, arguments or
// environment, or the part after "=" of one, that is a mount path or lies below
// it, becomes the folder that is mounted there. A hostPath is the same name on
// the node's tree; its /dev shows attached disks as links to their trees.
// Program, arguments and environment must therefore name everything that the
// program is to touch.

const (
	restartFirst = 10 * time.Second // the kubelet's
	restartMost  = 5 * time.Minute
	messageLimit = 4096 // of a termination message, as in the kubelet
	messageLines = 80   // taken from the log instead
)

// runPrograms runs the pod's containers: init containers one after the other,
// then the rest at the same time. It returns when no program of it runs.
func (p *pod) runPrograms(spec *corev1.Pod) {
	defer func() {
		p.mu.Lock()
		p.active = false
		p.mu.Unlock()
		close(p.done)
		p.changed()
	}()
	volumes, ok := p.mountVolumes(spec)
	if !ok {
		return
	}
	for _, c := range p.containers {
		if c.init && !p.runContainer(spec, volumes, c) {
			return
		}
	}
	ended := make(chan struct{}, len(p.containers))
	started := 0
	for _, c := range p.containers {
		if c.init {
			continue
		}
		if c.program == "" {
			p.mu.Lock()
			if !p.failed {
				c.claim(time.Now())
			}
			p.mu.Unlock()
			continue
		}
		started++
		go func() {
			p.runContainer(spec, volumes, c)
			ended <- struct{}{}
		}()
	}
	for range started {
		<-ended
	}
}

// changed has the pod's status be pushed.
func (p *pod) changed() { p.r.substrate.queue.Add(p.name.String()) }

// awaitQuiet waits until no program of the pod runs.
func (p *pod) awaitQuiet(ctx context.Context) error {
	if p.done == nil {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pause waits d, and reports false if the pod is to end before.
func (p *pod) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.asked:
	case <-p.ctx.Done():
	}
	return false
}

// ending reports whether the pod is to end.
func (p *pod) ending() bool {
	select {
	case <-p.asked:
		return true
	case <-p.ctx.Done():
		return true
	default:
		return false
	}
}

// runContainer runs a container as often as its restart policy wants, and
// reports whether it ended well.
func (p *pod) runContainer(spec *corev1.Pod, volumes map[string]string, c *containerRun) bool {
	if c.program == "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.claim(time.Now())
		return true
	}
	for retry := restartFirst; ; retry = min(2*retry, restartMost) {
		ended := p.runOnce(spec, volumes, c)
		again := p.restartPolicy == corev1.RestartPolicyAlways && !c.init || ended.ExitCode != 0 && p.restartPolicy != corev1.RestartPolicyNever
		again = again && !p.ending()
		p.mu.Lock()
		if !p.failed {
			c.state = corev1.ContainerState{Terminated: &ended}
			c.finished = !again
		}
		p.mu.Unlock()
		p.changed()
		if !again {
			return ended.ExitCode == 0
		}
		p.mu.Lock()
		c.last = ended.DeepCopy()
		c.state = waiting("CrashLoopBackOff")
		p.mu.Unlock()
		p.changed()
		if !p.pause(retry) {
			p.mu.Lock()
			c.state = corev1.ContainerState{Terminated: &ended}
			c.finished = true
			p.mu.Unlock()
			return false
		}
		p.mu.Lock()
		c.restarts++
		p.mu.Unlock()
	}
}

// runOnce runs a container's process to its end.
func (p *pod) runOnce(spec *corev1.Pod, volumes map[string]string, c *containerRun) corev1.ContainerStateTerminated {
	started := metav1.NewTime(time.Now())
	refused := func(err error) corev1.ContainerStateTerminated {
		return corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: err.Error(), StartedAt: started, FinishedAt: metav1.NewTime(time.Now())}
	}
	message := filepath.Join(p.dir, "termination-log-"+c.spec.Name)
	command, err := p.command(spec, volumes, c, message)
	if err != nil {
		return refused(err)
	}
	log, err := p.openLog(c)
	if err != nil {
		return refused(err)
	}
	out, problems := log.stream("stdout"), log.stream("stderr")
	command.Stdout, command.Stderr = out, problems

	// The kernel kills the child when the thread that started it ends, so this
	// one is kept until the child has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := command.Start(); err != nil {
		return refused(errors.Join(err, log.end()))
	}
	p.mu.Lock()
	if !p.failed {
		c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
	}
	p.mu.Unlock()
	p.changed()

	p.awaitProcess(command)
	if err := errors.Join(out.Close(), problems.Close(), log.end()); err != nil {
		p.r.substrate.log.Warn("container log", "pod", p.name.String(), "error", err)
	}
	ended := corev1.ContainerStateTerminated{StartedAt: started, FinishedAt: metav1.NewTime(time.Now()), Reason: "Completed"}
	if status, ok := command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		ended.ExitCode = 128 + int32(status.Signal()) // #nosec G115 -- a signal's number
	} else {
		ended.ExitCode = int32(command.ProcessState.ExitCode()) // #nosec G115 -- a byte
	}
	if ended.ExitCode != 0 {
		ended.Reason = "Error"
	}
	ended.Message = terminationMessage(c.spec, message, log, ended.ExitCode)
	return ended
}

// awaitProcess waits for the process, and ends it when the pod is to end.
func (p *pod) awaitProcess(command *exec.Cmd) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = command.Wait() // the process state says how it ended
	}()
	signal := func(s syscall.Signal) {
		// The group, so that children end too. One that has ended is no news.
		_ = syscall.Kill(-command.Process.Pid, s)
	}
	select {
	case <-done:
		return
	case <-p.ctx.Done():
	case <-p.asked:
		signal(syscall.SIGTERM)
		p.mu.Lock()
		left := time.Until(p.killAt)
		p.mu.Unlock()
		timer := time.NewTimer(max(left, 0))
		defer timer.Stop()
		select {
		case <-done:
			return
		case <-timer.C:
		case <-p.ctx.Done():
		}
	}
	signal(syscall.SIGKILL)
	<-done
}

// openLog begins the log of a container's next run.
func (p *pod) openLog(c *containerRun) (*containerLog, error) {
	folder := path.Join(p.logFolder(), c.spec.Name)
	if err := p.r.tree.mkdir(folder, 0o755); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	file, err := p.r.tree.resolve(fmt.Sprintf("%s/%d.log", folder, c.restarts), false)
	if err != nil {
		return nil, err
	}
	log, err := newContainerLog(file, time.Now)
	if err != nil {
		return nil, err
	}
	c.previous, c.log = c.log, log
	return log, nil
}

// terminationMessage is what the container left for people. Source: the fields
// terminationMessagePath and terminationMessagePolicy of v1.Container.
func terminationMessage(spec *corev1.Container, file string, log *containerLog, exit int32) string {
	if content, err := os.ReadFile(file); err == nil && len(content) > 0 {
		return string(content[max(0, len(content)-messageLimit):])
	}
	if exit == 0 || spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return ""
	}
	text, err := log.tailText(messageLines, messageLimit)
	if err != nil {
		return ""
	}
	return text
}

// mount is a path in a container and the folder that it stands for.
type mount struct{ path, folder string }

// command builds the process of a container.
func (p *pod) command(spec *corev1.Pod, volumes map[string]string, c *containerRun, message string) (*exec.Cmd, error) {
	mounts, err := containerMounts(c.spec, volumes)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(message, nil, 0o600); err != nil {
		return nil, err
	}
	if at := c.spec.TerminationMessagePath; at != "" {
		mounts = append(mounts, mount{path.Clean(at), message})
	}
	slices.SortFunc(mounts, func(a, b mount) int { return len(b.path) - len(a.path) })

	variables, err := p.environment(spec, c.spec)
	if err != nil {
		return nil, err
	}
	words := make([]string, 0, len(c.spec.Command)+len(c.spec.Args))
	for _, word := range append(append([]string{}, c.spec.Command[1:]...), c.spec.Args...) {
		words = append(words, rewrite(expand(word, variables), mounts))
	}
	scratch := filepath.Join(p.dir, "tmp")
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, err
	}
	command := exec.Command(c.program, words...) // #nosec G204 -- one of Config.Programs
	command.Dir = scratch
	if c.spec.WorkingDir != "" {
		if dir := rewrite(c.spec.WorkingDir, mounts); dir != c.spec.WorkingDir {
			command.Dir = dir
		}
	}
	command.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + scratch, "TMPDIR=" + scratch, "HOSTNAME=" + p.name.Name,
	}
	for _, v := range variables {
		command.Env = append(command.Env, v.name+"="+rewrite(v.value, mounts))
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	command.WaitDelay = 2 * time.Second // for grandchildren that keep the output
	return command, nil
}

func containerMounts(spec *corev1.Container, volumes map[string]string) ([]mount, error) {
	mounts := make([]mount, 0, len(spec.VolumeMounts)+1)
	for _, m := range spec.VolumeMounts {
		folder, ok := volumes[m.Name]
		if !ok {
			continue // of a kind that a program cannot have here
		}
		if m.SubPath != "" {
			sub := path.Clean("/" + m.SubPath)
			resolved, err := tree(folder).resolve(sub, true)
			if err != nil {
				return nil, err
			}
			folder = resolved
		}
		mounts = append(mounts, mount{path.Clean(m.MountPath), folder})
	}
	return mounts, nil
}

// rewrite replaces a mount path at the beginning of a word, or of what follows
// its first "=".
func rewrite(word string, mounts []mount) string {
	if to, ok := mounted(word, mounts); ok {
		return to
	}
	if flag, value, ok := strings.Cut(word, "="); ok {
		if to, ok := mounted(value, mounts); ok {
			return flag + "=" + to
		}
	}
	return word
}

// mounted maps a path in the container to one outside. Longer mounts come first.
func mounted(name string, mounts []mount) (string, bool) {
	if !strings.HasPrefix(name, "/") {
		return "", false
	}
	for _, m := range mounts {
		if m.path == "/" {
			return filepath.Join(m.folder, name), true
		}
		if rest, ok := strings.CutPrefix(name, m.path); ok && (rest == "" || rest[0] == '/') {
			return m.folder + rest, true
		}
	}
	return "", false
}

type variable struct{ name, value string }

// environment evaluates a container's variables, in order.
func (p *pod) environment(spec *corev1.Pod, container *corev1.Container) ([]variable, error) {
	api := p.r.substrate.client.CoreV1()
	var variables []variable
	for _, e := range container.Env {
		value := expand(e.Value, variables)
		switch from := e.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil:
			field, ok := p.field(spec, from.FieldRef.FieldPath)
			if !ok {
				return nil, fmt.Errorf("variable %s: field %s is not known here", e.Name, from.FieldRef.FieldPath)
			}
			value = field
		case from.SecretKeyRef != nil:
			secret, err := api.Secrets(p.name.Namespace).Get(p.ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("variable %s: %w", e.Name, err)
			}
			value = string(secret.Data[from.SecretKeyRef.Key])
		case from.ConfigMapKeyRef != nil:
			object, err := api.ConfigMaps(p.name.Namespace).Get(p.ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("variable %s: %w", e.Name, err)
			}
			value = object.Data[from.ConfigMapKeyRef.Key]
		default:
			return nil, fmt.Errorf("variable %s has a source that is not known here", e.Name)
		}
		variables = append(variables, variable{e.Name, value})
	}
	return variables, nil
}

func (p *pod) field(spec *corev1.Pod, name string) (string, bool) {
	if key, ok := strings.CutPrefix(name, "metadata.annotations['"); ok {
		return spec.Annotations[strings.TrimSuffix(key, "']")], true
	}
	if key, ok := strings.CutPrefix(name, "metadata.labels['"); ok {
		return spec.Labels[strings.TrimSuffix(key, "']")], true
	}
	value, ok := map[string]string{
		"metadata.name": spec.Name, "metadata.namespace": spec.Namespace, "metadata.uid": string(spec.UID),
		"spec.nodeName": spec.Spec.NodeName, "spec.serviceAccountName": spec.Spec.ServiceAccountName,
		"status.hostIP": p.r.hostIP(), "status.podIP": p.ip,
	}[name]
	return value, ok
}

// expand replaces $(NAME) by a variable that is defined before, and $$ by $.
// Source: the field command of v1.Container.
func expand(text string, variables []variable) string {
	var out strings.Builder
	for {
		before, after, ok := strings.Cut(text, "$")
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		if rest, ok := strings.CutPrefix(after, "$"); ok {
			out.WriteByte('$')
			text = rest
			continue
		}
		if name, rest, ok := strings.Cut(after, ")"); ok && strings.HasPrefix(name, "(") {
			if i := slices.IndexFunc(variables, func(v variable) bool { return v.name == name[1:] }); i >= 0 {
				out.WriteString(variables[i].value)
				text = rest
				continue
			}
		}
		out.WriteByte('$')
		text = after
	}
}

package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/node/bootstrap"
)

// Limits of the programs that are called.
const (
	commandTimeout = 20 * time.Second
	// controlTimeout is above systemd's DefaultTimeoutStartSec and -StopSec, 90 s.
	controlTimeout = 3 * time.Minute
	caTimeout      = time.Minute
	healthzTimeout = 2 * time.Second
	maxOutput      = 4 << 10 // bytes of a failed program's output that are shown
	journalLines   = 5
)

// Machine is this machine: systemctl, systemd-analyze, journalctl,
// update-ca-certificates and /proc/sys.
func Machine() System { return machine{} }

type machine struct{}

func run(ctx context.Context, timeout time.Duration, env []string, program string, args ...string) (stdout, stderr []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	var out, problems bytes.Buffer
	c.Env, c.Stdout, c.Stderr, c.WaitDelay = append(c.Environ(), env...), &out, &problems, time.Second
	if err = c.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		text, _, _ := strings.Cut(problems.String(), "\nSee ") // systemctl's advice
		text, _, _ = strings.Cut(text, ` See "journalctl`)
		if len(args) > 0 {
			program += " " + args[0]
		}
		err = fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(text[:min(len(text), maxOutput)]))
	}
	return out.Bytes(), problems.Bytes(), err
}

func (machine) Verify(ctx context.Context, stage string, units []string) ([]string, error) {
	var env []string
	if stage != "" {
		env = append(env, "SYSTEMD_UNIT_PATH="+stage+":") // the empty end stands for the usual folders
	}
	args := append([]string{"verify", "--man=no", "--recursive-errors=no", "--"}, units...)
	_, problems, err := run(ctx, commandTimeout, env, "systemd-analyze", args...)
	if bytes.Contains(problems, []byte("unrecognized option")) { // before systemd 250
		_, problems, err = run(ctx, commandTimeout, env, "systemd-analyze", slices.Delete(args, 2, 3)...)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(problems)), "\n"), nil
}

func (machine) Reload(ctx context.Context) error {
	_, _, err := run(ctx, controlTimeout, nil, "systemctl", "daemon-reload")
	return err
}

func (machine) Control(ctx context.Context, verb Verb, unit string, wait bool) error {
	if verb != Stop {
		// Otherwise a unit that failed often is refused ("start request repeated too quickly").
		_, _, _ = run(ctx, commandTimeout, nil, "systemctl", "reset-failed", "--", unit) // fails where systemd does not know the unit yet
	}
	args := []string{string(verb), "--", unit}
	if !wait {
		args = append([]string{"--no-block"}, args...)
	}
	_, _, err := run(ctx, controlTimeout, nil, "systemctl", args...)
	return err
}

// show reads properties of a unit.
func show(ctx context.Context, unit string, properties ...string) (map[string]string, error) {
	out, _, err := run(ctx, commandTimeout, nil, "systemctl", "show", "--property="+strings.Join(properties, ","), "--", unit)
	values := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = value
	}
	return values, err
}

func (machine) Unit(ctx context.Context, unit string) (UnitState, error) {
	v, err := show(ctx, unit, "ActiveState", "NRestarts", "Type", "Result", "ActiveEnterTimestampMonotonic")
	if err != nil {
		return UnitState{}, err
	}
	s := UnitState{Active: v["ActiveState"]}
	s.Restarts, _ = strconv.Atoi(v["NRestarts"]) // units that are no services have none
	// systemd forgets the times of such a unit as soon as it ended.
	s.Done = s.Active == "inactive" && v["Type"] == "oneshot" && v["Result"] == "success"
	if since, err := strconv.ParseInt(v["ActiveEnterTimestampMonotonic"], 10, 64); err == nil && since > 0 && s.Active == "active" {
		s.Since = time.Now().Add(time.Duration(since)*time.Microsecond - bootstrap.Uptime(""))
	}
	return s, nil
}

func (machine) Journal(ctx context.Context, unit string) []string {
	_, _, _ = run(ctx, commandTimeout, nil, "journalctl", "--sync") // what was logged just now counts
	out, _, err := run(ctx, commandTimeout, nil, "journalctl", "--quiet", "--no-pager", "--unit="+unit, "--lines=40", "--output=json", "--output-fields=MESSAGE,_PID")
	if err != nil {
		return nil // it only explains an error
	}
	return causes(out)
}

// causes are the last lines of a unit's last run that say more than that systemd started,
// stopped or lost it, of the journal as JSON; all lines, where there are none.
func causes(journal []byte) []string {
	var run, last, all []string
	for line := range bytes.Lines(journal) {
		var e struct {
			Message string `json:"MESSAGE"`
			PID     string `json:"_PID"`
		}
		if json.Unmarshal(line, &e) != nil { // a MESSAGE that is not text is a list of bytes
			continue
		}
		all = append(all, e.Message)
		if e.PID == "1" && lifecycle.MatchString(e.Message) {
			run = nil
			continue
		}
		run = append(run, e.Message)
		last = run
	}
	if len(last) == 0 {
		last = all
	}
	return last[max(0, len(last)-journalLines):]
}

// lifecycle are systemd's own messages (its src/core/unit.c, job.c and service.c).
var lifecycle = regexp.MustCompile(`^(Start|Stopp|Reload)(ing|ed) |: (Main process exited|Failed with result|Scheduled restart job|Deactivated successfully|Consumed )`)

// sysctlFile is where the kernel has a parameter. The first separator decides what the
// other one means: net/ipv4/conf/eth0.1/forwarding. Source: sysctl.d(5).
func sysctlFile(key string) string {
	if i := strings.IndexAny(key, "./"); i >= 0 && key[i] == '.' {
		key = strings.NewReplacer(".", "/", "/", ".").Replace(key)
	}
	return filepath.Join("/proc/sys", filepath.Clean("/"+key))
}

func (machine) Sysctl(key string) (string, error) {
	text, err := os.ReadFile(sysctlFile(key))
	return strings.TrimSpace(string(text)), err
}

func (machine) SetSysctl(key, value string) error {
	f, err := os.OpenFile(sysctlFile(key), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

func (machine) UpdateCACertificates(ctx context.Context) error {
	_, _, err := run(ctx, caTimeout, nil, "update-ca-certificates")
	return err
}

func (machine) Command(ctx context.Context, unit string) ([]string, error) {
	v, err := show(ctx, unit, "MainPID")
	if err != nil || v["MainPID"] == "" || v["MainPID"] == "0" {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join("/proc", v["MainPID"], "cmdline"))
	if err != nil {
		return nil, fmt.Errorf("read command line of %s: %w", unit, err)
	}
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00"), nil
}

func (machine) Healthz(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, healthzTimeout)
	defer cancel()
	url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "/healthz"
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	r, err := client.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }() // only its status counts
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, r.Status)
	}
	return nil
}

func (machine) Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

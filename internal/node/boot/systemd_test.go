package boot

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ortet/ortet/internal/boots/timeline/source"
	"github.com/ortet/ortet/internal/wire"
)

func shown(text string) []wire.BootReport {
	return source.SystemctlShow(strings.NewReader(text), source.Options{})
}

func TestSystemdsOwnTimes(t *testing.T) {
	for virtualization, container := range map[string]bool{"": false, "kvm": false, "container-other": true} {
		r := ofSystemd(shown(`UserspaceTimestamp=Sat 2026-11-21 13:35:44.693998 UTC
UserspaceTimestampMonotonic=4000123
KernelTimestamp=Sat 2026-11-21 13:35:40.693875 UTC
FinishTimestamp=Sat 2026-11-21 13:35:49.700000 UTC
FinishTimestampMonotonic=9000000
UnitsLoadStartTimestamp=Sat 2026-11-21 13:35:45 UTC
UnitsLoadStartTimestampMonotonic=4500000
SecurityStartTimestampMonotonic=18446744073709551615
Virtualization=`+virtualization+"\n"), nil)
		want := wire.SystemTimes{Userspace: 4_000_123, UnitsLoadStart: 4_500_000, Finish: 9_000_000, Container: container}
		if r.System.SecurityStart = 0; r.System != want { // a time that cannot be is clamped
			t.Errorf("%q: %+v, want %+v", virtualization, r.System, want)
		}
		at := wire.Micros(time.Date(2026, 11, 21, 13, 35, 44, 693_998_000, time.UTC).UnixMicro())
		// That of UnitsLoadStart is cut to the second.
		if want := []wire.ClockReading{{Monotonic: 4_000_123, Wall: at}, {Monotonic: 9_000_000, Wall: at + 5_006_002}}; !reflect.DeepEqual(r.Clocks, want) {
			t.Errorf("clocks %v, want %v", r.Clocks, want)
		}
	}
}

func TestUnitsOfThisBootAreKept(t *testing.T) {
	r := ofSystemd(nil, shown(`Id=a.service
InactiveExitTimestampMonotonic=5
ActiveEnterTimestampMonotonic=7
After=b.target c.service
Type=oneshot
Result=success
NRestarts=2
ConditionResult=yes
ConditionTimestampMonotonic=4

Id=again.service
InactiveExitTimestampMonotonic=6
ConditionResult=no
ConditionTimestampMonotonic=9

Id=skipped.service
After=b.target
InactiveExitTimestampMonotonic=0
ConditionResult=no
ConditionTimestampMonotonic=9

Id=never.service
InactiveExitTimestampMonotonic=0
ConditionResult=no
ConditionTimestampMonotonic=0
`))
	want := []wire.BootUnit{
		{Name: "a.service", Activating: 5, Activated: 7, After: []string{"b.target", "c.service"}, Oneshot: true, Restarts: 2},
		{Name: "again.service", Activating: 6},
		{Name: "skipped.service", Skipped: true},
	}
	if !reflect.DeepEqual(r.Units, want) {
		t.Errorf("%+v, want %+v", r.Units, want)
	}
	if s := r.Sources[0]; s.Name != "systemd" || s.State != wire.SourceRead {
		t.Errorf("%+v", s)
	}
}

func TestProgramsAreBounded(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	all := func(out io.Reader) { _, _ = io.Copy(io.Discard, out) }
	err = run(t.Context(), time.Minute, sh, []string{"-c", "echo out; echo no bus >&2; yes no bus | head -c 100000 >&2; exit 3"}, all)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "no bus") || len(err.Error()) > 2*maxComplaint {
		t.Errorf("it failed: %v", err)
	}
	if err := run(t.Context(), 50*time.Millisecond, sh, []string{"-c", "exec sleep 600"}, all); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it hangs: %v", err)
	}
	line := ""
	err = run(t.Context(), time.Minute, sh, []string{"-c", "while :; do echo out; done"}, func(out io.Reader) {
		line, _ = bufio.NewReader(out).ReadString('\n')
	})
	if line != "out\n" || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it prints on: %q, %v", line, err)
	}
}

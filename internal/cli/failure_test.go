package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/image/capture"
	"github.com/ortet/ortet/internal/workflow"
)

// A program that asked for JSON gets JSON, however the command ends.
func TestFailuresAreJSONToo(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want failure
	}{
		"refused": {&workflow.Refused{Problems: []fleet.Problem{{Code: "NodeNotReady", What: "w", On: "node n"}}},
			failure{Exit: 3, Problems: []fleet.Problem{{Code: "NodeNotReady"}}}},
		"needs a person": {&workflow.Outcome{Exit: workflow.ExitNeedsPerson, Step: "ready", Left: []string{"node n"}, Err: errors.New("x")}, failure{Exit: 4, Left: []string{"node n"}}},
		"interrupted":    {&workflow.Outcome{Exit: workflow.ExitInterrupted, Step: "stop", Left: []string{"node n is in service"}, Err: errors.New("x")}, failure{Exit: 5}},
		"failed":         {&workflow.Outcome{Exit: workflow.ExitFailed, Step: "drain", Err: errors.New("x")}, failure{Exit: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			o := &options{output: "json", process: Process{Out: &out}}
			err := o.printFailure(capture.Result{Donor: "n"}, nil, c.err)
			if !errors.Is(err, c.err) || workflow.ExitCode(err) != c.want.Exit {
				t.Errorf("gives %v back, with exit code %d", err, workflow.ExitCode(err))
			}
			var got failure
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("not JSON: %v\n%s", err, out.String())
			}
			if got.Exit != c.want.Exit || got.Error == "" || len(got.Problems) != len(c.want.Problems) || len(got.Left) != len(c.want.Left) {
				t.Errorf("got %+v", got)
			}
			if len(got.Problems) == 1 && got.Problems[0].Code != c.want.Problems[0].Code {
				t.Errorf("problem %+v", got.Problems[0])
			}
		})
	}
}

// What is noted is told also where a command fails, but beside a refusal.
func TestNotesOfAFailure(t *testing.T) {
	for text, err := range map[string]error{"Note: pod p is left to node n\n": &workflow.Outcome{Exit: workflow.ExitFailed, Step: "drain", Err: errors.New("x")}, "": &workflow.Refused{}} {
		var out, stderr bytes.Buffer
		o := &options{output: "table", process: Process{Out: &out, Err: &stderr}}
		if got := o.printFailure(capture.Result{}, []string{"pod p is left to node n"}, err); !errors.Is(got, err) || out.Len() > 0 || stderr.String() != text {
			t.Errorf("%v: %v, %q, %q", err, got, out.String(), stderr.String())
		}
	}
}

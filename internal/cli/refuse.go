package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/workflow"
	"github.com/ortet/ortet/internal/yamlfile"
)

// refuse is the refusal of an argument, before anything was changed.
func refuse(code, on, what, wayOut string) error {
	return &workflow.Refused{Problems: []fleet.Problem{{Code: code, On: on, What: what, WayOut: wayOut}}}
}

// A refusedFileError is a file of the operator's that is not used, with the cause that its
// reader gave.
type refusedFileError struct {
	*workflow.Refused
	cause error
}

func (e refusedFileError) Error() string   { return e.cause.Error() }
func (e refusedFileError) Unwrap() []error { return []error{e.Refused, e.cause} }

// refuseFile refuses a file that cannot be read or is not valid, for all reasons at once.
// It gives a mistake in the command line back as it is.
func refuseFile(name string, err error) error {
	var (
		usage   usageError
		invalid *yamlfile.InvalidError
		r       = &workflow.Refused{}
	)
	switch {
	case err == nil || errors.As(err, &usage):
		return err
	case errors.As(err, &invalid):
		for _, p := range invalid.Problems {
			what := p.Cause
			if p.Field != "" {
				what = p.Field + ": " + what
			}
			r.Problems = append(r.Problems, fleet.Problem{Code: "InvalidFile", On: fmt.Sprintf("%s:%d", name, p.Line), What: what})
		}
	case errors.Is(err, fs.ErrNotExist):
		r.Problems = []fleet.Problem{{Code: "NoSuchFile", On: name, What: err.Error()}}
	default:
		p := fleet.Problem{Code: "InvalidFile", On: name, What: err.Error()}
		if e := (*fleet.Error)(nil); errors.As(err, &e) && e.Err != nil && e.Resource == name {
			p.What, p.WayOut = e.Op+": "+e.Err.Error(), e.Remedy
		}
		r.Problems = []fleet.Problem{p}
	}
	return refusedFileError{r, err}
}

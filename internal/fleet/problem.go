package fleet

import (
	"fmt"
	"time"
)

// A Problem is a reason to refuse. All of a request's problems are found at once.
type Problem struct {
	Code   string `json:"code"`   // stable, "NodeNotReady"
	What   string `json:"what"`   // "the node is not Ready (KubeletNotReady: …)"
	On     string `json:"on"`     // "node aks-1", an ARM id
	WayOut string `json:"wayOut"` // what a person can do about it
}

// String returns the problem in one line.
func (p Problem) String() string {
	s := p.On + ": " + p.What
	if p.WayOut != "" {
		s += "; " + p.WayOut
	}
	return s
}

// Count is a number and what is counted: "1 node", "2 nodes".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Each returns what of returns for each of a list, in its order; nil for an empty one.
func Each[T, S any](list []T, of func(T) S) (all []S) {
	for _, x := range list {
		all = append(all, of(x))
	}
	return all
}

// A Duration is text in JSON, "2m30s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

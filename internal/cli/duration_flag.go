package cli

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"
)

// A durationFlag is a duration as every flag takes it: Go's, or with days ("2d", "1d12h").
type durationFlag struct {
	value   *time.Duration
	seconds bool // a number without a unit is seconds, as kamino's
}

// durationVar adds a flag for a duration.
func durationVar(flags *pflag.FlagSet, value *time.Duration, name string, otherwise time.Duration, usage string) {
	*value = otherwise
	flags.Var(durationFlag{value: value}, name, usage)
}

// Type implements pflag.Value.
func (f durationFlag) Type() string { return "duration" }

// String implements pflag.Value. pflag's help leaves out a default of "0".
func (f durationFlag) String() string {
	if f.value == nil || *f.value == 0 {
		return "0"
	}
	return durationText(*f.value)
}

// Set implements pflag.Value.
func (f durationFlag) Set(text string) error {
	if n, err := strconv.ParseUint(text, 10, 32); f.seconds && err == nil {
		*f.value = time.Duration(n) * time.Second
		return nil
	}
	d, err := parseDuration(text)
	switch {
	case f.seconds && (err != nil || d < 0):
		return errors.New("want seconds (90), or a duration such as 30s, 5m or 2d")
	case err != nil:
		return errors.New("want a duration such as 30s, 5m or 2d")
	}
	*f.value = d
	return nil
}

// parseDuration reads what Go reads, and what Prometheus reads, which has days and weeks.
func parseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	d, err := model.ParseDuration(text)
	return time.Duration(d), err
}

// durationText is the shortest text that parseDuration reads as d: "2d" for 48h0m0s.
func durationText(d time.Duration) string {
	if d < 0 || d%time.Millisecond != 0 {
		return d.String()
	}
	return model.Duration(d).String()
}

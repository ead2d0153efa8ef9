package wire

import (
	"strings"
	"time"
)

// maxStage bounds the times of a stage in a text.
const maxStage = 24 * time.Hour

// Words of a StageTime. An extension's status holds nothing but text, so that
// what people read there is what programs read too: one owner keeps the two
// from drifting apart.
const (
	stageTook  = "took "
	stageUntil = ", until "
	stageBegan = "began "
	stageAfter = " after the kernel's start"
	stageGoes  = " and has not ended"
)

// Text returns when a stage ran, for people, to a tenth of a second: "took 1.2s, until 34s
// after the kernel's start", or "began 3s after the kernel's start and has not ended".
// ParseStageTime reads it.
func (s StageTime) Text() string {
	if s.End <= 0 {
		return stageBegan + tenths(s.Begin) + stageAfter + stageGoes
	}
	return stageTook + tenths(s.End-s.Begin) + stageUntil + tenths(s.End) + stageAfter
}

// tenths is a number of milliseconds for people.
func tenths(millis int64) string {
	return (time.Duration(millis) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// ParseStageTime reads the Text of a stage of this name. It may come from anybody who is
// root on a machine: any other text, and times that no boot has, return false.
func ParseStageTime(name, text string) (StageTime, bool) {
	if name == "" || checkText("stage", name, maxName) != nil {
		return StageTime{}, false
	}
	if rest, ok := strings.CutPrefix(text, stageBegan); ok {
		rest, ok = strings.CutSuffix(rest, stageAfter+stageGoes)
		begin, known := stageDuration(rest)
		return StageTime{Name: name, Begin: begin.Milliseconds()}, ok && known
	}
	rest, ok := strings.CutPrefix(text, stageTook)
	if !ok {
		return StageTime{}, false
	}
	if rest, ok = strings.CutSuffix(rest, stageAfter); !ok {
		return StageTime{}, false
	}
	first, second, ok := strings.Cut(rest, stageUntil)
	took, okTook := stageDuration(first)
	end, okEnd := stageDuration(second)
	if !ok || !okTook || !okEnd || took > end {
		return StageTime{}, false
	}
	// An end of 0 would mean that it has not come.
	return StageTime{Name: name, Begin: (end - took).Milliseconds(), End: max(end.Milliseconds(), 1)}, true
}

func stageDuration(text string) (time.Duration, bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0 && d <= maxStage
}

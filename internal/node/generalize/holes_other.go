//go:build !linux

package generalize

import "os"

func nextData(_ *os.File, off, _ int64) (int64, error) { return off, nil }

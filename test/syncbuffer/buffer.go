// Package syncbuffer is a text that one goroutine or program writes while a test reads it.
package syncbuffer

import (
	"strings"
	"sync"
)

// A Buffer is an io.Writer whose text can be read at any time. The zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends to the text. It does not fail.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the text so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Package logtest holds the log of what is tested, for tests to read.
package logtest

import (
	"bytes"
	"strings"
	"sync"
)

// Buffer is a log. It is safe for concurrent use; the zero Buffer is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to the log.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns all that was logged.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Take returns the lines that were logged since the last call.
func (b *Buffer) Take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.TrimSuffix(b.text.String(), "\n")
	b.text.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// Count returns how often the log holds the text.
func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }

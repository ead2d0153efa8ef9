package hollow

import (
	"fmt"
	"sync"
)

// consoleLimit is what Azure's boot diagnostics keep, and azsim.Substrate allows.
const consoleLimit = 1 << 20

// console keeps the tail of what a computer wrote to its serial console. Its
// zero value is empty.
type console struct {
	mu   sync.Mutex
	text []byte
}

// printf adds a line.
func (c *console) printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = fmt.Appendf(c.text, format+"\r\n", args...)
	if len(c.text) > 2*consoleLimit {
		c.text = append([]byte(nil), c.text[len(c.text)-consoleLimit:]...)
	}
}

func (c *console) tail() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.text
	if len(text) > consoleLimit {
		text = text[len(text)-consoleLimit:]
	}
	return append([]byte(nil), text...)
}

package verdict

import "github.com/ortet/ortet/internal/redact"

// Redact makes lines fit to be published, one for one (redact.Lines).
func Redact(lines []string) []string { return redact.Lines(lines) }

// RedactText makes a text of one line fit to be published (redact.Text).
func RedactText(s string) string { return redact.Text(s) }

// Plain makes a text one line that can be printed (redact.Plain).
func Plain(s string, most int) string { return redact.Plain(s, most) }

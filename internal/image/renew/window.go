package renew

import "github.com/ortet/ortet/internal/schedule"

// A Window is when nodes may be begun. The zero Window is always open.
type Window = schedule.Window

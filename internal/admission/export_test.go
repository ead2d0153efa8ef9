package admission

import "time"

// EndIn replaces how long requests may go on once the server is to end.
func EndIn(s *Server, d time.Duration) { s.endFor = d }

// WriteOmissions is for tests that do not serve.
var WriteOmissions = (*Server).writeOmissions

package admission

// WriteOmissions is for tests that do not serve.
var WriteOmissions = (*Server).writeOmissions

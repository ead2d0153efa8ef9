package machine

// How a name server answers: at once, after some seconds, or never, as clouds' do at times.
const (
	NamesAnswered = "answers"
	NamesSlow     = "slow"
	NamesSilent   = "silent"
)

// NameServers are all of them.
var NameServers = []string{NamesAnswered, NamesSlow, NamesSilent}

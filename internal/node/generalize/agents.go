package generalize

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"

	"github.com/ortet/ortet/internal/node/tree"
	"github.com/ortet/ortet/internal/wire"
)

// agentFile is a file that is another agent's identity and that no row of the table
// removes: the agent makes no new one, or keeps it where its configuration says.
type agentFile struct {
	path   string // as in the table; without a slash at its beginning it is a path's end
	sign   string // what the file holds, "" for any content
	remedy string // what a person does on the donor
}

// agentFiles are data as the table is.
func agentFiles() []agentFile {
	return []agentFile{
		// Without it the agent does not start, and enrols only by its command.
		{"fleet.enc", "", "the Elastic Agent's enrolment: install it on the donor with --delay-enroll"},
		// The key lies in the file that names the management server.
		{"/etc/netbird/config.json", `"PrivateKey"`, "NetBird's key of this peer: deregister it on the donor; clones register by a setup key"},
		{"/var/lib/netbird/*.json", `"PrivateKey"`, "NetBird's key of this peer: deregister it on the donor; clones register by a setup key"},
		{"proc/sqlite.db", "/ids/", "Teleport's keys of this host in another data_dir: remove it on the donor; Teleport joins again"},
		{"proc/sqlite.db-wal", "/ids/", "Teleport's keys of this host in another data_dir: remove it on the donor; Teleport joins again"},
		{"keys.json", `"agent-svid-`, "a SPIRE agent's key in another data_dir: remove it on the donor; the agent attests itself again"},
		{"tailscaled.state", "", "Tailscale's keys of this machine in another folder: remove it on the donor; a clone logs in by an auth key"},
		{"cloud.d/private.pem", "", "Netdata's key of this node in another folder: remove it on the donor; Netdata claims the node again"},
	}
}

// nebulaKey begins the type of Nebula's keys in PEM. A host's certificate has its address
// in the network, and is signed where a clone cannot ask.
const nebulaKey = "NEBULA "

// matches reports whether a path is the file's.
func (a agentFile) matches(at string) bool {
	if ok, err := path.Match(path.Base(a.path), path.Base(at)); err != nil || !ok {
		return false // most paths end here
	}
	pattern := strings.TrimPrefix(a.path, "/")
	if pattern == a.path {
		parts := strings.Split(at, "/")
		at = strings.Join(parts[max(0, len(parts)-1-strings.Count(pattern, "/")):], "/")
	}
	ok, err := path.Match(pattern, at)
	return err == nil && ok
}

// agentIdentity finds the identity of another agent in a piece.
func (s *scanner) agentIdentity(p piece) {
	for _, a := range s.agentFiles {
		if a.matches(p.Path) && bytes.Contains(p.Data, []byte(a.sign)) {
			s.find(p.at, ruleAgentIdentity, wire.NodeIdentity, a.remedy)
		}
	}
}

// spireKeysIn returns the keys of SPIRE's disk key manager.
func spireKeysIn(_ *tree.Tree, _ string, data []byte) ([][]byte, error) {
	var file struct {
		Keys map[string][]byte `json:"keys"`
	}
	_ = json.Unmarshal(data, &file) // what is no such file has no keys
	var keys [][]byte
	for _, key := range file.Keys {
		keys = append(keys, key)
	}
	return keys, nil
}

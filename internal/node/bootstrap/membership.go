package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"
)

const (
	nodeTimeout = 5 * time.Second
	// nodeSource is where a failed question to the API server is quoted from.
	nodeSource = "API server, asked as the kubelet"
)

// membership is the API server's answer about this node, asked with the kubelet's own
// credentials: the kubelet gets the same answer.
type membership struct {
	// cannot means that it cannot be asked: no usable kubeconfig. Nothing is known then.
	cannot bool
	// answered means that the API server returned the node, or that it has none.
	answered   bool
	unsigned   bool   // the kubelet has no certificate to ask with yet
	registered bool   // it has the node, of this boot
	ready      bool   // its condition Ready is True
	condition  string // reason and message of Ready where it is not
	said       string // the question and what came of it, where that is not the node
}

// memberCheck asks for the membership, and remembers the last answer.
type memberCheck struct {
	question
	answer membership
}

func (m *memberCheck) last() (time.Time, membership) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked, m.answer
}

// askMembership asks for the node once. It changes nothing there.
func askMembership(ctx context.Context, o Options, bootID string) membership {
	path := func(node string) string { return "/api/v1/nodes/" + url.PathEscape(node) }
	config, u, err := APIServer(o.Root).login(path)
	if err != nil {
		unsigned := errors.Is(err, errUnsigned)
		return membership{cannot: !unsigned, unsigned: unsigned, said: err.Error()}
	}
	a, err := Ask(ctx, Question{Method: "GET", URL: u, TLS: config, Within: nodeTimeout})
	if err != nil {
		return membership{said: err.Error()}
	}
	m := parseMembership(a, bootID)
	if m.said != "" {
		m.said = "GET " + u.String() + ": " + m.said
	}
	return m
}

// nodeAnswer is a Node or a Status.
type nodeAnswer struct {
	Kind   string `json:"kind"`
	Status json.RawMessage
}

type nodeStatus struct {
	Conditions []struct{ Type, Status, Reason, Message string } `json:"conditions"`
	NodeInfo   struct {
		BootID string `json:"bootID"`
	} `json:"nodeInfo"`
}

// parseMembership reads the API server's answer. A Node that an earlier boot of this
// machine, or another machine of its name, has left is not this boot's: its kubelet has not
// reported yet.
func parseMembership(answer Answer, bootID string) membership {
	var a nodeAnswer
	problem, status := json.Unmarshal(answer.Body, &a), answer.Status
	switch {
	case answer.Code != 200:
		return membership{answered: answer.Code == 404 && problem == nil && a.Kind == "Status", said: answer.Refusal()}
	case problem != nil:
		return membership{said: status + ", and not the JSON of a Node: " + problem.Error()}
	case a.Kind != "Node":
		return membership{said: status + ", and a " + clip(a.Kind) + ", not a Node"}
	}
	var s nodeStatus
	if err := json.Unmarshal(a.Status, &s); err != nil {
		return membership{said: status + ", and a Node with a status that cannot be read: " + err.Error()}
	}
	if other := s.NodeInfo.BootID; bootID != "" && !strings.EqualFold(other, bootID) {
		return membership{answered: true, said: status + ", and the Node is of another boot: " + clip(other)}
	}
	m := membership{answered: true, registered: true}
	for _, c := range s.Conditions {
		if c.Type != "Ready" {
			continue
		}
		m.ready = c.Status == "True"
		if !m.ready {
			m.condition = c.Reason + ": " + c.Message
		}
	}
	return m
}

package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// join admits a node: the checks 7 to 9 after the proof, and then a token.
func (s *Server) join(ctx context.Context, who proven, request wire.JoinRequest) (wire.Join, error) {
	if !s.config.CallbackPorts.Has(request.CallbackPort) {
		return wire.Join{}, refuse(CallbackPortForbidden, fmt.Errorf("it wants to be called back at port %d", request.CallbackPort))
	}
	done := s.meters.stage("node")
	node, err := s.config.Cluster.Node(ctx, who.node)
	done()
	if err != nil {
		return wire.Join{}, ofPort(ctx, ClusterUnavailable, err)
	}
	if of := node.ProviderID; strings.HasPrefix(of, "azure://") && !strings.EqualFold(of, who.member.ProviderID()) {
		return wire.Join{}, refuse(NameTaken, fmt.Errorf("node %s has provider id %.300q", who.node, of))
	}
	if node.Exists {
		if err := s.lives(ctx, who.node, node.Ready); err != nil {
			return wire.Join{}, err
		}
	}
	if err := s.spend(ctx, who); err != nil {
		return wire.Join{}, err
	}
	done = s.meters.stage("callback")
	err = s.callBack(ctx, who, request.CallbackPort)
	done()
	if err != nil {
		return wire.Join{}, err
	}
	done = s.meters.stage("admit")
	joined, err := s.config.Cluster.Admit(ctx, who.member, request.Distribution, node)
	done()
	switch {
	case errors.Is(err, ErrTaken):
		return wire.Join{}, refuse(NameTaken, err)
	case errors.Is(err, ErrReady):
		return wire.Join{}, refuse(NodeReady, err)
	case errors.Is(err, ErrRevoked):
		return wire.Join{}, refuse(Revoked, err)
	case errors.Is(err, ErrHeard):
		return wire.Join{}, &refusal{reason: KubeletHeard, err: err, after: retryAfter(err)}
	}
	if err != nil {
		return wire.Join{}, ofPort(ctx, ClusterUnavailable, err)
	}
	if joined.NodeName != who.node || joined.Token == "" {
		return wire.Join{}, refuse(Internal, errors.New("the cluster admitted another node"))
	}
	return joined, nil
}

// lives refuses the name of a Node whose kubelet lives, by its Lease. A Node is not Ready
// for moments while its pods run, and stays Ready until the controller of Nodes sees that
// its machine is deleted, a minute late after an API server's outage. Without a Lease,
// Ready is the only sign of life.
func (s *Server) lives(ctx context.Context, node string, ready bool) error {
	heard, err := s.config.Cluster.Heard(ctx, node)
	if err != nil {
		return ofPort(ctx, ClusterUnavailable, err)
	}
	if heard.IsZero() && ready {
		return refuse(NodeReady, fmt.Errorf("node %s is Ready, and has no Lease", node))
	}
	ago := s.config.Now().Sub(heard)
	if ago >= leaseFresh {
		return nil
	}
	reason := KubeletHeard
	if ready {
		reason = NodeReady
	}
	return &refusal{reason: reason, err: errHeard(node, ago), after: min(max(leaseFresh-ago, time.Second), leaseFresh)}
}

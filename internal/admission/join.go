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
	if node.Exists && node.Ready {
		return wire.Join{}, refuse(NodeReady, fmt.Errorf("node %s is Ready, with provider id %.300q", who.node, node.ProviderID))
	}
	if of := node.ProviderID; strings.HasPrefix(of, "azure://") && !strings.EqualFold(of, who.member.ProviderID()) {
		return wire.Join{}, refuse(NameTaken, fmt.Errorf("node %s has provider id %.300q", who.node, of))
	}
	if node.Exists {
		// A Node is not Ready for moments, and its pods are there still.
		ago, err := s.silence(ctx, who.node)
		if err != nil {
			return wire.Join{}, err
		}
		if left := leaseFresh - ago; left > 0 {
			return wire.Join{}, &refusal{reason: KubeletHeard, err: errHeard(who.node, ago), after: min(max(left, time.Second), leaseFresh)}
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

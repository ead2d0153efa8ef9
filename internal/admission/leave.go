package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ortet/ortet/internal/wire"
)

// evicted is the cause of a node that leaves since Azure evicts it.
const evicted = "Preempt"

// leave drains the node. A node whose Node is deleted has nothing left to drain.
func (s *Server) leave(ctx context.Context, r *request) (any, error) {
	body, err := parse[wire.LeaveRequest](r.body)
	if err != nil {
		return nil, err
	}
	r.facts.departure = body.Cause
	who, err := s.leaver(ctx, r)
	if errors.Is(err, errNoNode) {
		return wire.Leave{Drained: true}, nil
	}
	if err != nil {
		return nil, err
	}
	r.known() // many may leave at once by one address, and others wait for none of them
	end, ok := s.drains.begin(who.node)
	if !ok {
		return nil, refuse(RateLimited, fmt.Errorf("%d requests of the node to leave are worked on", maxDrains))
	}
	defer end()
	if body.Cause == evicted && who.key == nil {
		// A document is every process's. It is one small write, and the drain does not fail
		// by it: seconds are left.
		if err := s.config.Evicted(ctx, who.member); err != nil {
			s.config.Log.WarnContext(ctx, "an eviction was not taken down, and the capacity may stay lower by it", "node", who.node, "instance", string(who.member.Instance), "error", err)
		}
	}
	left, err := s.config.Cluster.Leave(ctx, who.node, body)
	return left, ofPort(ctx, ClusterUnavailable, err)
}

// left deletes the Node, with what belongs to it. Where the Node is deleted already, what
// has its name may be the next machine's, and stays. It takes the kubelet's certificate:
// without it the Node is deleted when Azure has no such machine.
func (s *Server) left(ctx context.Context, r *request) (any, error) {
	body, err := parse[wire.LeftRequest](r.body)
	if err != nil {
		return nil, err
	}
	r.facts.departure = body.Cause
	who, err := s.leaver(ctx, r)
	if errors.Is(err, errNoNode) {
		return struct{}{}, nil
	}
	if err != nil {
		return nil, err
	}
	switch {
	case who.key != nil && who.exists:
		return nil, refuse(DocumentInsufficient, fmt.Errorf("node %s is there, and whoever is on its machine has a document", who.node))
	case who.key != nil:
		return struct{}{}, nil
	}
	return struct{}{}, ofPort(ctx, ClusterUnavailable, s.config.Cluster.Forget(ctx, who.node, who.member.ProviderID()))
}

// back undoes what leave marked: a reboot is over, or an event passed.
func (s *Server) back(ctx context.Context, r *request) (any, error) {
	if _, err := parse[struct{}](r.body); err != nil {
		return nil, err
	}
	who, err := s.leaver(ctx, r)
	if errors.Is(err, errNoNode) {
		return struct{}{}, nil
	}
	if err != nil {
		return nil, err
	}
	return struct{}{}, ofPort(ctx, ClusterUnavailable, s.config.Cluster.Return(ctx, who.node))
}

// goer finds out who reports. Every pod of the machine that reaches the
// metadata service has its document, so of a Node that is Ready, and has pods, it is
// not enough: its kubelet has a certificate.
func (s *Server) goer(ctx context.Context, r *request) (proven, error) {
	return s.going(ctx, r, func(context.Context, proven) error { return nil })
}

// leaver identifies who leaves or comes back. A Node may not be Ready for moments, or for
// reasons of its own, and has pods still: its document is not enough either until its
// kubelet was silent for as long as makes a node lost. left also reports that the kubelet
// is stopped.
func (s *Server) leaver(ctx context.Context, r *request) (proven, error) {
	return s.going(ctx, r, func(ctx context.Context, who proven) error {
		ago, err := s.silence(ctx, who.node)
		if err == nil && ago < leaseFresh {
			return refuse(CertificateNeeded, errHeard(who.node, ago))
		}
		return err
	})
}

// silence is how long a Node's kubelet has been silent.
func (s *Server) silence(ctx context.Context, node string) (time.Duration, error) {
	heard, err := s.config.Cluster.Heard(ctx, node)
	return s.config.Now().Sub(heard), ofPort(ctx, ClusterUnavailable, err)
}

func errHeard(node string, ago time.Duration) error {
	return fmt.Errorf("the kubelet of node %s was heard of %s ago", node, ago.Round(time.Second))
}

// going identifies the client. By a document, of a machine that has a Node, silent returns
// besides why the document is not enough for its Node.
func (s *Server) going(ctx context.Context, r *request, silent func(context.Context, proven) error) (proven, error) {
	who, err := s.authenticate(ctx, r.http, r.body, r.facts)
	if err != nil || who.key == nil {
		return who, err
	}
	node, err := s.config.Cluster.Node(ctx, who.node)
	if err != nil {
		return who, ofPort(ctx, ClusterUnavailable, err)
	}
	if node.Exists && node.Ready {
		return who, refuse(CertificateNeeded, fmt.Errorf("node %s is Ready", who.node))
	}
	who.exists = node.Exists
	if node.Exists {
		if err := silent(ctx, who); err != nil {
			return who, err
		}
	}
	return who, s.spend(ctx, who)
}

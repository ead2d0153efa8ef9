package admission

import (
	"context"
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/wire"
)

// verdict stores a node's report of its boot's outcome.
func (s *Server) verdict(ctx context.Context, r *request) (any, error) {
	v, err := wire.ParseVerdict(r.body)
	if err != nil {
		return nil, refuse(BadRequest, err)
	}
	who, err := s.goer(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := own(who, v.Node, v.VMID); err != nil {
		return nil, err
	}
	return struct{}{}, ofPort(ctx, ClusterUnavailable, s.config.Cluster.Tell(ctx, who.member, &v, nil))
}

// boot stores a node's report of its boot's duration by step.
func (s *Server) boot(ctx context.Context, r *request) (any, error) {
	b, err := wire.ParseBootReport(r.body)
	if err != nil {
		return nil, refuse(BadRequest, err)
	}
	who, err := s.goer(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := own(who, b.Node, b.VMID); err != nil {
		return nil, err
	}
	return struct{}{}, ofPort(ctx, ClusterUnavailable, s.config.Cluster.Tell(ctx, who.member, nil, &b))
}

// own sees that a report names the machine that sends it, as far as it names one. A
// host name may have been changed on the machine: only what is another instance's
// vmId is another's.
func own(who proven, node, vmID string) error {
	if vmID != "" && !strings.EqualFold(vmID, who.member.VMID) {
		return refuse(ForeignReport, fmt.Errorf("the report is of vmId %.60q, node %.100q", vmID, node))
	}
	return nil
}

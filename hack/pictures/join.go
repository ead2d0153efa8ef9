package main

import (
	"fmt"
	"strings"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/admission/attest"
	"github.com/ortet/ortet/internal/admission/kube"
	"github.com/ortet/ortet/internal/node/join"
	"github.com/ortet/ortet/internal/wire"
)

// Who takes part in a join, by place.
const (
	machine = iota
	metadata
	server
	cloud
	apiServer
)

// A message is an arrow between two of them; or has reasons for which it is refused.
type message struct {
	from, to int
	text     string
	or       []admission.Reason
}

func joinSequence() (string, error) {
	c := &canvas{}
	names := [...][2]string{{"Machine", "ortet-node join"}, {"Metadata service", "169.254.169.254"}, {"ortet admission", "in the cluster"}, {"Azure", "Resource Manager"}, {"API server", "of the cluster"}}
	place := func(i int) float64 { return 95 + float64(i)*172.5 }
	phases := []struct {
		name, colour string
		messages     []message
	}{
		{"The machine asks", "base", []message{
			{machine, server, "POST " + wire.NoncePath + ": a nonce", nil},
			{machine, metadata, "sign nonce, key and id", nil},
			{machine, server, "POST " + wire.JoinPath + ": Azure's document, signed request", []admission.Reason{admission.NonceExpired, admission.PoolNotAllowed, admission.SignatureInvalid, admission.Reason(attest.Forged)}},
		}},
		{"The server checks", "platform", []message{
			{server, cloud, "is it there, with this vmId?", []admission.Reason{admission.InstanceGone, admission.VMIDMismatch}},
			{server, apiServer, "is the name free, its kubelet silent?", []admission.Reason{admission.NodeReady, admission.KubeletHeard, admission.NameTaken}},
			{server, apiServer, "use the nonce, once for all replicas", []admission.Reason{admission.NonceSpent}},
			{server, machine, fmt.Sprintf("call back, port %d: who has the key?", admission.DefaultCallbackPort), []admission.Reason{admission.CallbackFailed, admission.CallbackWrongKey}},
		}},
		{"It grants a token", "node", []message{
			{server, apiServer, fmt.Sprintf("token for this Node's name, %.0f min", kube.DefaultTokenTTL.Minutes()), nil},
			{server, machine, "token and cluster's CA; " + join.JoinUnit + " ends", nil},
		}},
		{"The kubelet becomes a node", "good", []message{
			{machine, apiServer, "kubelet: certificate request with the token", nil},
			{server, apiServer, "approve it: this name, the first key", nil},
			{machine, apiServer, "kubelet: register the Node, with its certificate; the token is deleted once it is Ready", nil},
		}},
	}
	known := map[admission.Reason]bool{}
	for _, m := range admission.Reasons() {
		known[m.Reason] = true
	}
	const head = 76.0
	height := head + 56
	for _, p := range phases {
		height += 38
		for _, m := range p.messages {
			height += 34
			if m.or != nil {
				height += 16
			}
		}
	}
	for i, n := range names {
		c.line(place(i), head+42, place(i), height, "dash")
		c.box(place(i)-75, head, 150, 42, "ground")
		c.box(place(i)-75, head, 150, 42, "frame")
		c.text(place(i), head+18, "head", "middle", n[0])
		c.text(place(i), head+34, "dim", "middle", n[1])
	}
	c.text(margin, 56, "dim", "start", "No secret lies in the image or in customData. Below an arrow: reasons to refuse it, as in the audit log")
	y, n := head+52, 0
	for _, p := range phases {
		y += 28
		c.box(margin, y-11, width-2*margin, 18, "ground")
		c.box(margin, y-11, width-2*margin, 18, p.colour+" faint")
		c.text(margin+8, y+2, "head", "start", p.name)
		y += 10
		for _, m := range p.messages {
			y += 34
			n++
			from, to := place(m.from), place(m.to)
			label := fmt.Sprintf("%d  %s", n, m.text)
			middle := (from + to) / 2
			half := lengthOf("", label)/2 + 3
			middle = min(max(middle, margin+half), width-margin-half)
			c.box(middle-half, y-17, 2*half, 15, "ground")
			c.text(middle, y-6, "", "middle", label)
			c.arrow(from, to, y, p.colour)
			if m.or == nil {
				continue
			}
			var or []string
			for _, r := range m.or {
				if !known[r] {
					c.fail("%s is no reason of a refusal", r)
				}
				or = append(or, string(r))
			}
			label = "or " + strings.Join(or, ", ")
			half = lengthOf("dim", label)/2 + 3
			middle = min(max((from+to)/2, margin+half), width-margin-half)
			c.box(middle-half, y+4, 2*half, 14, "ground")
			c.text(middle, y+15, "dim", "middle", label)
			y += 16
		}
	}
	return c.picture(height+margin, fmt.Sprintf("How a machine becomes a node: %d messages, no secret to carry", n),
		"A sequence of messages between a machine, Azure's metadata service, the admission server, Azure Resource Manager and the API server. "+
			"The machine gets a nonce, has Azure sign it with its key, and asks to join. The server verifies the document, asks Azure and the cluster, "+
			"calls the machine back, and makes a token for the Node's name. The kubelet gets its certificate with that token.")
}

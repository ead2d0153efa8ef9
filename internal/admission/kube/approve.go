package kube

import (
	"context"
	"errors"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/fleet"
)

// decide decides on a request that is watched, and acts.
func (r *run) decide(ctx context.Context, name string) error {
	c := r.cluster
	found, there, err := r.watched.requests.GetStore().GetByKey(name)
	if err != nil || !there {
		return err
	}
	request, ok := found.(*certificatesv1.CertificateSigningRequest)
	if !ok || decided(request) {
		return nil
	}
	ask := csrOf(request)
	f, err := r.facts(ctx, ask)
	if err != nil {
		return err
	}
	d := decideCSR(ask, f)
	if d.verb == Approve && f.token != nil && f.token.key == "" {
		// Written before the approval: whoever comes second with another key finds it.
		f.token.key = ask.key
		_, err := c.client.CoreV1().ConfigMaps(c.namespace).Update(ctx, c.record(r.seal, *f.token), metav1.UpdateOptions{FieldManager: fieldManager})
		if err != nil {
			return fail(ctx, "bind a token to its key", "node "+f.token.node, err)
		}
	}
	if d.verb != Leave {
		answer := request.DeepCopy()
		answer.Status.Conditions = append(answer.Status.Conditions, conditionOf(d))
		_, err := c.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, name, answer, metav1.UpdateOptions{FieldManager: fieldManager})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case apierrors.IsConflict(err):
			// Another client decided, or it changed: the watch delivers that before the
			// next try.
			return &fleet.Error{Op: "decide on a certificate request", Resource: "certificatesigningrequest " + name, Kind: fleet.KindConflict, Err: errors.New("it changed meanwhile")}
		case err != nil:
			return fail(ctx, "decide on a certificate request", "certificatesigningrequest "+name, err)
		}
	}
	c.count(d, ask.signer)
	r.audit(Decided{Request: name, Signer: ask.signer, By: ask.username, Node: d.node, Verb: d.verb, Reason: d.reason, Message: d.message})
	return nil
}

// facts gathers what the decision needs to know, and no more.
func (r *run) facts(ctx context.Context, ask csr) (facts, error) {
	var f facts
	if id := ask.token(); id != "" {
		t, known, err := r.cluster.tokenByID(ctx, id)
		if known {
			f.token = &t
		}
		return f, err
	}
	node := ask.node()
	if node == "" || !ofKubelets(ask.signer) {
		return f, nil
	}
	// The list of names is large, and kubelets of a pool ask at the same time: the cached
	// admission is enough if Azure confirms it.
	if f.admission, f.admitted = r.cluster.remembered(node); f.admitted {
		if err := r.lookUp(ctx, &f); err != nil {
			return f, err
		}
		f.mayAsk = f.admission.mayAsk(ask.with, r.watched.issuedFor(node))
		if f.mayAsk && f.member != nil && f.member.VMID == f.admission.VMID {
			return f, nil
		}
	}
	var err error
	f.member = nil
	if f.admission, f.admitted, err = r.cluster.admission(ctx, node); err != nil || !f.admitted {
		return f, err
	}
	f.mayAsk = f.admission.mayAsk(ask.with, r.watched.issuedFor(node))
	return f, r.lookUp(ctx, &f)
}

// lookUp asks Azure for the admitted instance.
func (r *run) lookUp(ctx context.Context, f *facts) (err error) {
	f.member, err = r.looks.at(ctx, machine{f.admission.Instance, f.admission.VMID})
	return err
}

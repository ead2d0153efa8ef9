package kubesim

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// asked completes a new certificate request: who asks is the server's to say.
func (c *call) asked(request *certificatesv1.CertificateSigningRequest) {
	request.Spec.Username, request.Spec.Groups, request.Spec.UID, request.Spec.Extra = c.User, c.groups, "", nil
	request.Status = certificatesv1.CertificateSigningRequestStatus{}
}

// wroteRequest has a new certificate request approved and signed soon, if Sign
// says so.
func (s *Server) wroteRequest(old, e *entry) {
	if old != nil || s.Sign == nil {
		return
	}
	s.after(0, func() {
		t := s.tables["certificatesigningrequests"]
		request, ok := e.object.DeepCopyObject().(*certificatesv1.CertificateSigningRequest)
		if !ok || t.entries[e.key] != e {
			return // somebody else has decided on it
		}
		certificate := s.Sign(request)
		if certificate == nil {
			return
		}
		request.Status.Certificate = certificate
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved",
			Message: "Auto approving kubelet client certificate", LastUpdateTime: now(), LastTransitionTime: now(),
		})
		s.replace(t, e, request)
	})
}

// ownNode gives the name of the Node whose kubelet the user is.
func (c *call) ownNode() (string, bool) {
	const prefix = "system:node:"
	if len(c.User) <= len(prefix) || c.User[:len(prefix)] != prefix {
		return "", false
	}
	return c.User[len(prefix):], true
}

// restrictNode is admission by NodeRestriction, as far as a cloned identity meets
// it: a kubelet writes its own Node and Lease only.
func (c *call) restrictNode(name string) error {
	own, is := c.ownNode()
	if !is || own == name {
		return nil
	}
	switch {
	case c.Resource == "nodes":
		return c.forbidden(name, "node %q is not allowed to modify node %q", own, name)
	case c.Resource == "leases" && c.Namespace == corev1.NamespaceNodeLease:
		return c.forbidden(name, "can only access node lease with the same name as the requesting node")
	}
	return nil
}

package kubesim

import (
	"strings"

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

// restrictNode keeps a kubelet to its own Node, Lease and pods, as the Node authorizer
// and NodeRestriction do; what it may not change of these is not looked at.
func (s *Server) restrictNode(c *call, t *table) error {
	own, is := strings.CutPrefix(c.User, "system:node:")
	if !is {
		return nil
	}
	switch {
	case c.Resource == "nodes" && c.Verb != "create" && c.Name != own:
		return c.forbidden(c.Name, "node %q cannot %s other nodes", own, c.Verb)
	case c.Resource == "leases" && c.Verb != "create" && (c.Namespace != corev1.NamespaceNodeLease || c.Name != own):
		return c.forbidden(c.Name, "can only access node lease with the same name as the requesting node")
	case c.Resource == "pods" && c.Name != "":
		if pod, ok := ofEntry[corev1.Pod](t.entries[c.key()]); ok && pod.Spec.NodeName != own {
			return c.forbidden(c.Name, "node %q can only %s pods with spec.nodeName set to itself", own, c.Verb)
		}
	case c.Resource == "pods" && !strings.Contains(","+c.parameter("fieldSelector")+",", ",spec.nodeName="+own+","):
		return c.forbidden("", "can only list/watch pods with spec.nodeName field selector")
	}
	return nil
}

// restrictNewNode is restrictNode for what a kubelet makes.
func (c *call) restrictNewNode(name string) error {
	own, is := strings.CutPrefix(c.User, "system:node:")
	switch {
	case !is || own == name:
	case c.Resource == "nodes":
		return c.forbidden(name, "node %q is not allowed to modify node %q", own, name)
	case c.Resource == "leases":
		return c.forbidden(name, "can only access node lease with the same name as the requesting node")
	}
	return nil
}

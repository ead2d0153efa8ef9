package kube

import (
	"context"
	"errors"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// azureScheme begins a provider id of Azure's.
const azureScheme = "azure://"

// Forget implements admission.Cluster. The name goes first, so that nothing
// registers it again, then the token, the Node, and what it left. Whatever a crash
// left is found by a repeat: nothing here needs what went before.
func (c *Cluster) Forget(ctx context.Context, node, providerID string) error {
	var uid string
	var requests []string
	freed := false // the name; another machine may have it since
	for range attempts {
		found, err := c.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		exists := err == nil
		if err != nil && !apierrors.IsNotFound(err) {
			return fail(ctx, "read node", "node "+node, err)
		}
		if exists && uid != "" && string(found.UID) != uid {
			return nil // it was deleted, and this is another
		}
		unsure := false
		if exists {
			uid = string(found.UID)
			other := providerID != "" && found.Spec.ProviderID != "" && !strings.EqualFold(found.Spec.ProviderID, providerID)
			if other && strings.HasPrefix(found.Spec.ProviderID, azureScheme) {
				return nil
			}
			// k3s's own cloud controller writes "k3s://NODE" where the kubelet sets
			// nothing: then the admission counts.
			unsure = other
		}
		if !freed {
			if requests, freed, err = c.freeName(ctx, node, func(a admitted) bool {
				return providerID == "" || a.VMID == "" && !unsure || strings.EqualFold(azureScheme+string(a.Instance), providerID)
			}); err != nil || !freed {
				return err
			}
		}
		if exists {
			err := c.deleteNode(ctx, found)
			if fleet.Is(err, fleet.KindConflict) {
				continue // it reported meanwhile
			}
			if err != nil {
				return err
			}
		}
		return c.forgetRest(ctx, node, requests)
	}
	return &fleet.Error{Op: "forget", Resource: "node " + node, Kind: fleet.KindConflict, Err: errBusy}
}

// freeName removes a name's admission, if only allows it, and its token, and returns the
// certificate requests of until then.
func (c *Cluster) freeName(ctx context.Context, node string, only func(admitted) bool) (requests []string, freed bool, err error) {
	if requests, err = c.requestsFor(ctx, node); err != nil {
		return nil, false, err
	}
	if freed, err = c.names.change(ctx, &nameChange{name: node, only: only}); err != nil || !freed {
		return nil, false, err
	}
	if t, known, err := c.tokenOfNode(ctx, node); err != nil {
		return nil, false, err
	} else if known && t.node == node {
		if err := c.endToken(ctx, t); err != nil && !fleet.Is(err, fleet.KindConflict) {
			return nil, false, err
		}
	}
	return requests, true, nil
}

// forgetRest deletes a Node's leftovers, its certificate requests among them. These have to
// be listed before its name is free: later requests are the next machine's, and evidence of
// its certificates.
func (c *Cluster) forgetRest(ctx context.Context, node string, requests []string) error {
	for _, distribution := range []string{wire.K3s, wire.RKE2} {
		if err := c.deletePassword(ctx, node, distribution); err != nil {
			return err
		}
	}
	return c.deleteRequests(ctx, requests)
}

// forgetRequests deletes the certificate requests for a Node that was deleted and
// whose name is not admitted any more. It is for the replica that watches: another
// one, that forgot the node, may not have seen them all.
func (c *Cluster) forgetRequests(ctx context.Context, node string) error {
	w := c.watched.Load()
	if w == nil {
		return nil
	}
	requests := w.requestsFor(node)
	if len(requests) == 0 {
		return nil
	}
	if state, err := c.Node(ctx, node); err != nil || state.Exists {
		return err
	}
	if _, known, err := c.admission(ctx, node); err != nil || known {
		return err
	}
	return c.deleteRequests(ctx, requests)
}

func (c *Cluster) deleteRequests(ctx context.Context, requests []string) error {
	for _, name := range requests {
		err := c.client.CertificatesV1().CertificateSigningRequests().Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fail(ctx, "delete certificate request", "certificatesigningrequest "+name, err)
		}
	}
	return nil
}

// requestPages bounds what is read of certificate requests to forget one node. In a
// large cluster there are ten thousand at times; what is not seen here the replica
// that watches deletes, and in an hour Kubernetes.
const requestPages = 4

// requestsFor names the certificate requests for a node, as they are watched, or as
// far as requestPages goes where nothing is watched here.
func (c *Cluster) requestsFor(ctx context.Context, node string) ([]string, error) {
	if w := c.watched.Load(); w != nil && w.requests.HasSynced() {
		return w.requestsFor(node), nil
	}
	var names []string
	for _, signer := range []string{certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName} {
		options := metav1.ListOptions{Limit: page, FieldSelector: "spec.signerName=" + signer}
		for range requestPages {
			list, err := c.client.CertificatesV1().CertificateSigningRequests().List(ctx, options)
			if err != nil {
				return nil, fail(ctx, "list certificate requests", "", err)
			}
			for i := range list.Items {
				if subjectNode(&list.Items[i]) == node {
					names = append(names, list.Items[i].Name)
				}
			}
			if options.Continue = list.Continue; options.Continue == "" {
				break
			}
		}
	}
	return names, nil
}

// Admitted implements admission.Admissions.
func (c *Cluster) Admitted(ctx context.Context) ([]admission.AdmittedNode, error) {
	all := map[string]*admission.AdmittedNode{}
	found, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, NamesName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fail(ctx, "read the names admitted", c.names.on(), err)
	}
	if err == nil {
		pools, err := poolsOf(found)
		if err != nil {
			return nil, fail(ctx, "read the names admitted", c.names.on(), err)
		}
		s, err := c.sealer(ctx)
		if err != nil {
			return nil, err
		}
		for name, text := range found.Data {
			a, err := s.parse(name, text, pools)
			if errors.Is(err, errForged) {
				c.log.WarnContext(ctx, "admission is forged; it is ignored", "node", name, "list", c.names.on())
				continue
			}
			if err != nil {
				return nil, fail(ctx, "read the names admitted", c.names.on()+", key "+name, err)
			}
			if a.VMID != "" {
				all[name] = &admission.AdmittedNode{Name: name, Instance: a.Instance, Pool: a.Pool, VMID: a.VMID, Admitted: a.At}
			}
		}
	}
	err = c.eachNode(ctx, func(n *corev1.Node) {
		a := all[n.Name]
		if a == nil {
			if !strings.HasPrefix(n.Spec.ProviderID, azureScheme) {
				return
			}
			a = &admission.AdmittedNode{Name: n.Name}
			all[n.Name] = a
		}
		a.Exists, a.UID, a.Version, a.ProviderID = true, string(n.UID), n.ResourceVersion, n.Spec.ProviderID
		a.Created = n.CreationTimestamp.Time
		a.Ready, a.ReadySince = readiness(n)
	})
	if err != nil {
		return nil, err
	}
	err = c.eachLease(ctx, "", func(l *coordinationv1.Lease) {
		if a := all[l.Name]; a != nil && a.Exists {
			a.Renewed = renewedAt(l)
		}
	})
	if err != nil {
		return nil, err
	}
	out := make([]admission.AdmittedNode, 0, len(all))
	for _, a := range all {
		out = append(out, *a)
	}
	return out, nil
}

func (c *Cluster) eachNode(ctx context.Context, do func(*corev1.Node)) error {
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := c.client.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return fail(ctx, "list nodes", "", err)
		}
		for i := range list.Items {
			do(&list.Items[i])
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

func (c *Cluster) eachLease(ctx context.Context, fields string, do func(*coordinationv1.Lease)) error {
	options := metav1.ListOptions{Limit: page, FieldSelector: fields}
	for {
		list, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, options)
		if err != nil {
			return fail(ctx, "list the nodes' leases", "namespace "+corev1.NamespaceNodeLease, err)
		}
		for i := range list.Items {
			do(&list.Items[i])
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// Reap implements admission.Admissions. The Node goes first, since its deletion is
// what holds only in the state that was seen.
func (c *Cluster) Reap(ctx context.Context, seen admission.AdmittedNode) (bool, error) {
	same := func(a admitted) bool { return a.VMID == seen.VMID && (a.VMID == "" || a.At.Equal(seen.Admitted)) }
	now, _, err := c.admission(ctx, seen.Name)
	if err != nil {
		return false, err
	}
	if !same(now) {
		return false, nil
	}
	node, err := c.client.CoreV1().Nodes().Get(ctx, seen.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if seen.Exists {
			return false, nil
		}
	case err != nil:
		return false, fail(ctx, "read node", "node "+seen.Name, err)
	case !seen.Exists || string(node.UID) != seen.UID || node.ResourceVersion != seen.Version:
		return false, nil
	default:
		// A round takes long at times, and kubelets renew Leases without a write to
		// their Nodes.
		renewed := false
		err := c.eachLease(ctx, "metadata.name="+seen.Name, func(l *coordinationv1.Lease) {
			renewed = renewed || renewedAt(l).After(seen.Renewed)
		})
		if err != nil || renewed {
			return false, err
		}
		err = c.deleteNode(ctx, node)
		if fleet.Is(err, fleet.KindConflict) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	requests, err := c.requestsFor(ctx, seen.Name)
	if err != nil {
		return false, err
	}
	held, err := c.names.change(ctx, &nameChange{name: seen.Name, only: same})
	if err != nil {
		return false, err
	}
	if !held {
		// A machine was admitted under the name since: what is left is its own.
		return seen.Exists, nil
	}
	if t, known, err := c.tokenOfNode(ctx, seen.Name); err != nil {
		return false, err
	} else if known && t.node == seen.Name && t.vmID == seen.VMID {
		if err := c.endToken(ctx, t); err != nil && !fleet.Is(err, fleet.KindConflict) {
			return false, err
		}
	}
	return true, c.forgetRest(ctx, seen.Name, requests)
}

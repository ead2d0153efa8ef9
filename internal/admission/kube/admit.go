package kube

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sync/errgroup"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// TokenGroup is the group of our tokens beside system:bootstrappers, which all
// bootstrap tokens have. The chart binds it to the right to ask for a certificate.
// k3s's and RKE2's supervisors ask for no group but system:bootstrappers.
const TokenGroup = "system:bootstrappers:ortet"

// Node implements admission.Cluster.
func (c *Cluster) Node(ctx context.Context, name string) (admission.NodeState, error) {
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return admission.NodeState{}, nil
	}
	if err != nil {
		return admission.NodeState{}, fail(ctx, "read node", "node "+name, err)
	}
	c.absences.end(name)
	ready, _ := readiness(node)
	return admission.NodeState{Exists: true, Ready: ready, ProviderID: node.Spec.ProviderID}, nil
}

func readiness(node *corev1.Node) (ready bool, since time.Time) {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue, condition.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// Admit implements admission.Cluster. A Node that an earlier machine of the same instance id left is
// deleted; one of this machine's stays, and what a departure marked on it is undone.
func (c *Cluster) Admit(ctx context.Context, member fleet.Member, distribution string, node admission.NodeState) (wire.Join, error) {
	name := member.NodeName()
	now := c.now()
	if err := (wire.JoinRequest{Distribution: distribution, CallbackPort: 1}).Validate(); err != nil {
		return wire.Join{}, &fleet.Error{Op: "admit", Resource: "node " + name, Kind: fleet.KindInvalid, Err: err}
	}
	if name == "" || member.VMID == "" || member.Instance == "" {
		return wire.Join{}, &fleet.Error{Op: "admit", Resource: "node " + name, Kind: fleet.KindInvalid, Err: errors.New("a machine without name, id or vmId")}
	}
	var taken error = &fleet.Error{Op: "admit", Resource: "node " + name, Kind: fleet.KindConflict, Err: admission.ErrTaken}
	if before, known := c.remembered(name); known && !before.Instance.Equal(member.Instance) {
		// It may have been forgotten since. If nothing is remembered, the write of the name
		// decides.
		before, known, err := c.admission(ctx, name)
		if err != nil {
			return wire.Join{}, err
		}
		if known && !before.Instance.Equal(member.Instance) {
			return wire.Join{}, taken
		}
	}
	if !node.Exists {
		if err := c.checkAbsence(ctx, name, member); err != nil {
			return wire.Join{}, err
		}
	}
	if err := c.clear(ctx, name, member, node); err != nil {
		return wire.Join{}, err
	}
	s, err := c.sealer(ctx)
	if err != nil {
		return wire.Join{}, err
	}
	t := token{
		id: s.tokenID(name), made: now, node: name, vmID: member.VMID, instance: string(member.Instance), pool: string(member.Pool),
		distribution: distribution, expires: now.Add(c.ttl).Truncate(time.Second),
	}
	var secret *corev1.Secret
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error {
		refused := taken
		change := &nameChange{name: name, unless: revokedKey(member.VMID), set: func(admitted) admitted { return admittedOf(member, now) }, only: func(a admitted) bool {
			if a.VMID == "" || !a.Instance.Equal(member.Instance) {
				return a.VMID == ""
			}
			if node.Exists || !a.mayHaveRun(member, now, c.ttl) {
				return true
			}
			left := c.absences.left(name, now)
			if left > 0 {
				refused = absentError(name, left)
			}
			return left <= 0
		}}
		held, err := c.names.change(within, change)
		switch {
		case err != nil:
			return err
		case change.barred:
			return revokedError(member)
		case !held:
			return refused
		case distribution == wire.Kubelet:
			return nil
		}
		// Only now: a refused request must not delete the password of a running agent.
		return c.deletePassword(within, name, distribution)
	})
	// To its end also where the name is refused meanwhile: what was made is then known.
	group.Go(func() (err error) {
		secret, err = c.makeToken(ctx, &t)
		return err
	})
	if err := group.Wait(); err != nil {
		if secret != nil {
			c.withdraw(ctx, t, secret)
		}
		return wire.Join{}, err
	}
	c.absences.end(name)
	join := wire.Join{
		NodeName: name, ProviderID: member.ProviderID(), Pool: string(member.Pool), VMID: member.VMID,
		Server: c.server, CA: c.ca, Token: t.id + "." + string(secret.Data[tokenSecretKey]), Expires: t.expires,
	}
	if distribution != wire.Kubelet {
		join.Server, join.Token = c.supervisor, "K10"+c.caHash+"::"+join.Token
	}
	return join, nil
}

// clear deletes the Node that an earlier machine of the name left.
func (c *Cluster) clear(ctx context.Context, name string, member fleet.Member, node admission.NodeState) (err error) {
	for range attempts {
		if !node.Exists {
			break // one that was registered since is as one that is registered next
		}
		// A Node without a kubelet is written to all the same, by the controller of nodes'
		// life cycle.
		if err = c.clearNode(ctx, name, member); !errors.Is(err, errNodeChanged) {
			break
		}
	}
	return err
}

// clearNode deletes a Node that another machine left, and undoes the marks on one of this
// machine's own.
func (c *Cluster) clearNode(ctx context.Context, name string, member fleet.Member) error {
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fail(ctx, "read node", "node "+name, err)
	}
	ready, _ := readiness(node)
	before, known, err := c.admission(ctx, name)
	if err != nil {
		return err
	}
	switch {
	case known && !before.Instance.Equal(member.Instance):
		// It may restart just now. If it is deleted, garbage collection frees its name.
		return &fleet.Error{Op: "admit", Resource: "node " + name, Kind: fleet.KindConflict, Err: admission.ErrTaken}
	case known && before.VMID != member.VMID && ready:
		// Azure has another machine in its place. Its Node may still be Ready, and the
		// Lease shows whether any kubelet lives.
		heard, err := c.Heard(ctx, name)
		if err != nil {
			return err
		}
		if heard.IsZero() || c.now().Sub(heard) < absentFor {
			return readyError(name)
		}
		return c.deleteNode(ctx, node)
	case known && before.VMID != member.VMID:
		return c.deleteNode(ctx, node)
	case ready:
		// While the API server was away no Lease was renewed: this machine's pods run.
		return readyError(name)
	}
	return c.giveBack(ctx, node)
}

func readyError(node string) error {
	return &fleet.Error{Op: "admit", Resource: "node " + node, Kind: fleet.KindConflict, Err: admission.ErrReady}
}

// deletePassword deletes what k3s and RKE2 keep of a node's password: with another
// one, a machine of the name is refused.
// Source: k3s, pkg/nodepassword: NODE.node-password.PROGRAM in kube-system.
func (c *Cluster) deletePassword(ctx context.Context, node, distribution string) error {
	return c.deleteSecret(ctx, "delete node password", node+".node-password."+distribution)
}

// deleteSecret deletes one of kube-system; one that is not there is no error.
func (c *Cluster) deleteSecret(ctx context.Context, op, name string) error {
	err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fail(ctx, op, "secret "+metav1.NamespaceSystem+"/"+name, err)
}

// deleteNode deletes the Node that was read and no other, in the state in which it
// was read.
func (c *Cluster) deleteNode(ctx context.Context, node *corev1.Node) error {
	uid, version := node.UID, node.ResourceVersion
	err := c.client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return &fleet.Error{Op: "delete node", Resource: "node " + node.Name, Kind: fleet.KindConflict, Err: errNodeChanged}
	}
	return fail(ctx, "delete node", "node "+node.Name, err)
}

var errNodeChanged = errors.New("it changed since it was read")

// A token is the record of a bootstrap token beside its Secret: whose it is, and which
// client used it. It is a ConfigMap in Ortet's namespace, so that kube-system's Secrets
// need not be readable; the Secret itself does not decide what is signed.
type token struct {
	id                                       string
	node, vmID, instance, pool, distribution string
	made, expires                            time.Time
	key                                      string // hex SHA-256 of the first public key that asked; "" until then
	version                                  string // resourceVersion
}

const tokenPurpose = "token"

const base36Digits = "0123456789abcdefghijklmnopqrstuvwxyz"

func base36(n uint64, digits int) string {
	out := make([]byte, digits)
	for i := range out {
		out[i] = base36Digits[n%36]
		n /= 36
	}
	return string(out)
}

// tokenSecret is the secret part: 16 characters of a–z and 2–7, 80 bits.
func tokenSecret() string { return strings.ToLower(rand.Text())[:16] }

func recordName(id string) string { return "ortet-token-" + id }
func secretName(id string) string { return "bootstrap-token-" + id }

// tokenIn returns the id of the token whose record it is.
func tokenIn(m *corev1.ConfigMap) string { return strings.TrimPrefix(m.Name, recordName("")) }

func (c *Cluster) record(s *seal, t token) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: c.ours(c.namespace, recordName(t.id), tokenPurpose), Data: map[string]string{
		"node": t.node, "vmId": t.vmID, "instance": t.instance, "pool": t.pool, "distribution": t.distribution,
		"made": t.made.UTC().Format(time.RFC3339), "expires": t.expires.UTC().Format(time.RFC3339), sealDataKey: s.token(t),
	}}
	m.ResourceVersion = t.version
	if t.key != "" {
		m.Data["key"] = t.key
	}
	return m
}

// tokenOf reads a record. One that the server did not write is errForged, of which the
// version alone is known.
func tokenOf(s *seal, m *corev1.ConfigMap) (token, error) {
	t := token{
		id:   tokenIn(m),
		node: m.Data["node"], vmID: m.Data["vmId"], instance: m.Data["instance"], pool: m.Data["pool"],
		distribution: m.Data["distribution"], key: m.Data["key"], version: m.ResourceVersion,
	}
	var err error
	if t.expires, err = time.Parse(time.RFC3339, m.Data["expires"]); err != nil || t.node == "" {
		return token{}, fmt.Errorf("configmap %s is no record of a token", m.Name)
	}
	if t.made, err = time.Parse(time.RFC3339, m.Data["made"]); err != nil {
		t.made = time.Time{} // of an earlier version, which did not keep it
	}
	if !s.believesToken(m.Data[sealDataKey], t) {
		return token{version: m.ResourceVersion}, errForged
	}
	return t, nil
}

// tokenByID reads what is kept of a token; false where it is none of ours. Of a record
// that we did not write the version is given.
func (c *Cluster) tokenByID(ctx context.Context, id string) (token, bool, error) {
	on := "configmap " + c.namespace + "/" + recordName(id)
	found, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, recordName(id), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return token{}, false, nil
	}
	if err != nil {
		return token{}, false, fail(ctx, "read what is kept of a token", on, err)
	}
	s, err := c.sealer(ctx)
	if err != nil {
		return token{}, false, err
	}
	t, err := tokenOf(s, found)
	if errors.Is(err, errForged) {
		c.log.WarnContext(ctx, "token record is forged; it is ignored", "record", on)
		return t, false, nil
	}
	return t, err == nil, fail(ctx, "read what is kept of a token", on, err)
}

// tokenOfNode is tokenByID of a Node's name.
func (c *Cluster) tokenOfNode(ctx context.Context, node string) (token, bool, error) {
	s, err := c.sealer(ctx)
	if err != nil {
		return token{}, false, err
	}
	return c.tokenByID(ctx, s.tokenID(node))
}

// tokenSecretKey is of bootstrap tokens' Secrets.
const tokenSecretKey = "token-secret"

// makeToken makes a token in place of one that the name had, and returns its Secret. The
// version of t becomes that of its record.
func (c *Cluster) makeToken(ctx context.Context, t *token) (*corev1.Secret, error) {
	op, on := "make a token", "node "+t.node
	s, err := c.sealer(ctx)
	if err != nil {
		return nil, err
	}
	records := c.client.CoreV1().ConfigMaps(c.namespace)
	record, err := records.Create(ctx, c.record(s, *t), metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		before, known, readErr := c.tokenByID(ctx, t.id)
		switch {
		case readErr != nil:
			return nil, readErr
		case known && before.node != t.node && c.now().Before(before.expires):
			return nil, &fleet.Error{Op: op, Resource: on, Kind: fleet.KindConflict, RetryAfter: before.expires.Sub(c.now()),
				Err: fmt.Errorf("the token of node %s has the same id", before.node)}
		}
		// The old one first: it must not be used under the new record.
		if err := c.deleteSecret(ctx, "delete token", secretName(t.id)); err != nil {
			return nil, err
		}
		if before.version != "" {
			t.version = before.version
			record, err = records.Update(ctx, c.record(s, *t), metav1.UpdateOptions{FieldManager: fieldManager})
		} else {
			record, err = records.Create(ctx, c.record(s, *t), metav1.CreateOptions{FieldManager: fieldManager})
		}
	}
	if err != nil {
		return nil, fail(ctx, op, on, err)
	}
	t.version = record.ResourceVersion
	object := &corev1.Secret{
		ObjectMeta: c.ours(metav1.NamespaceSystem, secretName(t.id), tokenPurpose), Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id": []byte(t.id), tokenSecretKey: []byte(tokenSecret()),
			"expiration":                     []byte(t.expires.UTC().Format(time.RFC3339)),
			"usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups":              []byte(TokenGroup),
			"description":                    []byte("Made by Ortet's admission server for node " + t.node + " alone"),
		},
	}
	for key, value := range map[string]string{annotationNode: t.node, annotationVMID: t.vmID, annotationInstance: t.instance, annotationPool: t.pool, annotationDistribution: t.distribution} {
		object.Annotations[key] = value
	}
	made, err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		// What a crash left, or a token of the name that was made at the same time:
		// the last one counts.
		if err := c.deleteSecret(ctx, "delete token", secretName(t.id)); err != nil {
			return nil, err
		}
		made, err = c.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return nil, fail(ctx, op, on, err)
	}
	return made, nil
}

// withdrawFor limits how long a refused join waits for its token to be deleted.
const withdrawFor = 5 * time.Second

// withdraw deletes the token of a join that was refused or interrupted, and not one that
// was made for the name since.
func (c *Cluster) withdraw(ctx context.Context, t token, secret *corev1.Secret) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawFor)
	defer cancel()
	err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}})
	if err == nil {
		err = c.client.CoreV1().ConfigMaps(c.namespace).Delete(ctx, recordName(t.id), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &t.version}})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		c.log.WarnContext(ctx, "cannot delete the token of a refused join; it expires unused", "node", t.node, "expires", t.expires, "err", err)
	}
}

// endToken deletes a name's token with what is kept of it. The record goes last: a
// repeat finds what a crash left.
func (c *Cluster) endToken(ctx context.Context, t token) error {
	if err := c.deleteSecret(ctx, "delete token", secretName(t.id)); err != nil {
		return err
	}
	options := metav1.DeleteOptions{}
	if t.version != "" {
		options.Preconditions = &metav1.Preconditions{ResourceVersion: &t.version}
	}
	err := c.client.CoreV1().ConfigMaps(c.namespace).Delete(ctx, recordName(t.id), options)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fail(ctx, "delete what is kept of a token", "configmap "+c.namespace+"/"+recordName(t.id), err)
}

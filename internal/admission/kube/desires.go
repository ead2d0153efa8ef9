package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/ortet/ortet/internal/admission"
	"github.com/ortet/ortet/internal/fleet"
)

var _ admission.Desires = (*Cluster)(nil)

// A desire is a ConfigMap of Ortet's namespace, one for each scale set whose capacity is
// controlled, so that evictions of one do not delay another's. A user may delete it: then
// the capacity that is read next is the desired one.
const (
	desirePurpose = "desired-capacity"
	desireKey     = "desire"
	// maxDesire is what a thousand evictions take, and more.
	maxDesire = 512 << 10
)

func desireName(pool fleet.ResourceID) string {
	sum := sha256.Sum256([]byte(strings.ToLower(string(pool))))
	return "ortet-desired-capacity-" + hex.EncodeToString(sum[:8])
}

// Desire implements admission.Desires. One that cannot be read is none: what is
// desired is then what is found.
func (c *Cluster) Desire(ctx context.Context, pool fleet.ResourceID) (admission.Desire, error) {
	name := desireName(pool)
	m, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return admission.Desire{}, nil
	}
	if err != nil {
		return admission.Desire{}, fail(ctx, "read desired capacity", "config map "+c.namespace+"/"+name, err)
	}
	d, err := desireOf(m.Data[desireKey])
	if err != nil {
		c.log.WarnContext(ctx, "a desired capacity that cannot be read is made anew", "config map", c.namespace+"/"+name, "pool", string(pool), "error", err)
		d = admission.Desire{}
	}
	d.Version = m.ResourceVersion
	return d, nil
}

func desireOf(text string) (admission.Desire, error) {
	var d admission.Desire
	if len(text) > maxDesire {
		return d, fmt.Errorf("%d bytes, more than %d", len(text), maxDesire)
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return admission.Desire{}, err
	}
	if d.Capacity < 0 || d.Seen < 0 || d.Failures < 0 {
		return admission.Desire{}, errors.New("a number below zero")
	}
	return d, nil
}

// SetDesire implements admission.Desires.
func (c *Cluster) SetDesire(ctx context.Context, pool fleet.ResourceID, desire admission.Desire) error {
	name := desireName(pool)
	text, err := json.Marshal(desire)
	if err != nil {
		return &fleet.Error{Op: "keep desired capacity", Resource: string(pool), Kind: fleet.KindInvalid, Err: err}
	}
	m := &corev1.ConfigMap{ObjectMeta: c.ours(c.namespace, name, desirePurpose), Data: map[string]string{desireKey: string(text)}}
	m.Annotations[annotationPool] = string(pool)
	maps := c.client.CoreV1().ConfigMaps(c.namespace)
	if desire.Version == "" {
		_, err = maps.Create(ctx, m, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		m.ResourceVersion = desire.Version
		_, err = maps.Update(ctx, m, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	// Deleted by somebody meanwhile is changed, too.
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || desire.Version != "" && apierrors.IsNotFound(err) {
		return &fleet.Error{Op: "keep desired capacity", Resource: "config map " + c.namespace + "/" + name, Kind: fleet.KindStale, Err: err}
	}
	return fail(ctx, "keep desired capacity", "config map "+c.namespace+"/"+name, err)
}

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/boots/verdict"
	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/wire"
)

// Relayed reports are what nodes sent to the admission server, since they cannot reach the
// API server. It keeps them as ConfigMaps, which their reader deletes.
const (
	// RelayedLabel selects them; its value is the kind, and the key of the JSON.
	RelayedLabel       = "ortet.io/told"
	RelayedKindVerdict = "verdict"
	RelayedKindBoot    = "boot"
	// RelayedInstance annotates the ARM id of the instance that sent it, which the
	// admission server found out.
	RelayedInstance = "ortet.io/instance"
	relayedVM       = "ortet.io/vm-id"
)

const (
	// relayedInterval is the interval between lists of them, without their contents.
	relayedInterval = 5 * time.Second
	// maxRelayed is how many are read after one list, the rest later.
	maxRelayed = 100
)

// pendingVerdict is a verdict that waits to be published.
type pendingVerdict struct {
	verdict       wire.Verdict
	at            time.Time // when it was read
	name, version string    // of its ConfigMap
}

// pollRelayed takes relayed reports until ctx ends.
func (r *reconciler) pollRelayed(ctx context.Context) error {
	ticker := time.NewTicker(relayedInterval)
	defer ticker.Stop()
	for {
		if err := r.listRelayed(ctx); err != nil && ctx.Err() == nil {
			r.config.Log.WarnContext(ctx, "cannot read relayed reports", "namespace", r.config.Namespace, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// listRelayed lists relayed reports, and takes those of instances that are known. Others
// wait for their pool to be listed; the admission server bounds their number.
func (r *reconciler) listRelayed(ctx context.Context) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := r.client.List(ctx, list, client.InNamespace(r.config.Namespace), client.HasLabels{RelayedLabel}); err != nil {
		return fmt.Errorf("list relayed reports in %s: %w", r.config.Namespace, err)
	}
	var errs []error
	read := 0
	for i := range list.Items {
		m := &list.Items[i]
		key := fleet.KeyOf(fleet.ResourceID(m.Annotations[RelayedInstance]))
		known, ok := r.fleet.Get(key)
		if !ok || known.Boot.VMID == "" || known.relayed != nil && known.relayed.name == m.Name && known.relayed.version == m.ResourceVersion {
			continue
		}
		if read++; read > maxRelayed {
			break
		}
		errs = append(errs, r.readRelayed(ctx, key, known.Boot, client.ObjectKeyFromObject(m)))
	}
	return errors.Join(errs...)
}

func (r *reconciler) readRelayed(ctx context.Context, key fleet.Key, boot fleet.Boot, name client.ObjectKey) error {
	var m corev1.ConfigMap
	if err := r.client.Get(ctx, name, &m); err != nil {
		return ignoreGone(err)
	}
	kind := m.Labels[RelayedLabel]
	var err error
	switch {
	case !strings.EqualFold(m.Annotations[relayedVM], boot.VMID):
		err = fmt.Errorf("it is of the machine %s, and the instance is %s by now", verdict.Plain(m.Annotations[relayedVM], 64), boot.VMID)
	case kind == RelayedKindVerdict:
		var v wire.Verdict
		if v, err = wire.ParseVerdict([]byte(m.Data[kind])); err == nil {
			v.VMID = boot.VMID // the admission server knows whose it is, the node may not
			r.fleet.setRelayed(key, boot.VMID, &pendingVerdict{v, r.config.Now(), m.Name, m.ResourceVersion})
			r.enqueue([]fleet.Key{key})
			return nil // it goes once it is published
		}
	case kind == RelayedKindBoot:
		var report wire.BootReport
		if report, err = wire.ParseBootReport([]byte(m.Data[kind])); err == nil {
			if err := r.storeRelayedBoot(ctx, boot, report); err != nil {
				return err
			}
		}
	default:
		err = fmt.Errorf("nothing is known of the kind %q", verdict.Plain(kind, 64))
	}
	if err != nil {
		r.config.Log.WarnContext(ctx, "cannot use a relayed report",
			"configMap", m.Name, "instance", boot.Name, "error", err)
	}
	return r.deleteRelayed(ctx, m.Name, m.ResourceVersion)
}

// storeRelayedBoot keeps the report of a boot as if it was found on a Node, which there
// may not be.
func (r *reconciler) storeRelayedBoot(ctx context.Context, boot fleet.Boot, report wire.BootReport) error {
	view := &assess.NodeView{Name: strings.ToLower(boot.HostName)}
	node, err := r.nodeOf(ctx, boot)
	if err != nil {
		return err
	}
	if node != nil {
		view = viewOf(node)
	}
	report.VMID = boot.VMID
	record := assess.RecordOf(boot, view, report)
	fresh, err := r.stored.keep(ctx, record, report)
	if err != nil {
		return err
	}
	if fresh {
		t := timeline.Build(report, record.Cloud())
		r.meters.boot.observe(t, record)
		r.config.Log.InfoContext(ctx, "boot kept",
			"node", view.Name, "image", record.ImageVersion(), "took", t.Total().String(), "complete", t.Complete, "by", "admission")
	}
	return nil
}

// deletePublished deletes a relayed verdict that was published.
func (r *reconciler) deletePublished(ctx context.Context, key fleet.Key, v *pendingVerdict) error {
	if err := r.deleteRelayed(ctx, v.name, v.version); err != nil {
		return err
	}
	r.fleet.clearRelayed(key, v)
	return nil
}

// deleteRelayed deletes a relayed report, unless another one has taken its place.
func (r *reconciler) deleteRelayed(ctx context.Context, name, version string) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.config.Namespace}}
	err := r.client.Delete(ctx, m, client.Preconditions{ResourceVersion: &version})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete relayed report %s/%s: %w", r.config.Namespace, name, err)
	}
	return nil
}

// setRelayed puts in a relayed verdict, if the instance is still that machine.
func (f *Fleet) setRelayed(key fleet.Key, vmID string, v *pendingVerdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.all[key]; s != nil && strings.EqualFold(s.boot.VMID, vmID) {
		s.relayed = v
	}
}

func (f *Fleet) clearRelayed(key fleet.Key, v *pendingVerdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.all[key]; s != nil && s.relayed == v {
		s.relayed = nil
	}
}

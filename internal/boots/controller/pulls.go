package controller

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ortet/ortet/internal/boots/assess"
	"github.com/ortet/ortet/internal/boots/timeline"
	"github.com/ortet/ortet/internal/wire"
)

const (
	maxAsked  = 16  // pods of a node whose Events are listed
	maxEvents = 100 // of a pod
	// askedPerMinute bounds the lists of Events of all boots: the API server reads all Events of a
	// namespace for each (fields are no index).
	askedPerMinute = 120
	maxOwner       = 253 // of a name in Kubernetes, in bytes
	// longPull is beyond any pull, and largePull beyond any image, in bytes.
	longPull  = 24 * time.Hour
	largePull = 1 << 42
)

// plainName is what names of images and DaemonSets are made of. The owner of a pod is not checked by
// the API server, and a record is bounded.
var plainName = regexp.MustCompile(`^[\w.:/@+\[\]-]+$`)

func plain(name string, longest int) bool { return len(name) <= longest && plainName.MatchString(name) }

// pulls returns the images that a node pulled for its DaemonSets' pods since its boot began, the
// largest first. An image counts only if a pod's spec names it; its size and time are the kubelet's
// word, and without Events (no permission, too many boots at once) those of containerd's journal.
func (b *boots) pulls(ctx context.Context, node *corev1.Node, pods []corev1.Pod, report wire.BootReport) ([]timeline.Pull, error) {
	var out []timeline.Pull
	asked, denied := 0, false
	for i := range pods {
		p := &pods[i]
		owner := metav1.GetControllerOf(p)
		if owner == nil || owner.Kind != "DaemonSet" || asked == maxAsked || !plain(owner.Name, maxOwner) {
			continue
		}
		var events corev1.EventList
		if asked++; !denied && b.events.reserve(1) > 0 {
			denied = true
			b.config.Log.InfoContext(ctx, "too many boots at once: pulled images are known from the node alone", "node", node.Name)
		}
		if !denied {
			b.events.release(1)
			b.events.spend()
			ofPod := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.uid", string(p.UID))}
			err := b.client.List(ctx, &events, client.InNamespace(p.Namespace), ofPod, client.Limit(maxEvents))
			if denied = apierrors.IsForbidden(err); denied {
				b.config.Log.WarnContext(ctx, "the sizes of pulled images are not known", "node", node.Name, "error", err)
			} else if err != nil {
				return nil, fmt.Errorf("list the Events of pod %s/%s: %w", p.Namespace, p.Name, err)
			}
		}
		for _, pull := range pullsOf(p, events.Items, node, report) {
			pull.DaemonSet = p.Namespace + "/" + owner.Name
			again := slices.ContainsFunc(out, func(o timeline.Pull) bool { return o.Image == pull.Image })
			if plain(pull.Image, assess.MaxImageName) && !again {
				out = append(out, pull)
			}
		}
	}
	slices.SortStableFunc(out, func(x, y timeline.Pull) int { return cmp.Compare(y.Bytes, x.Bytes) })
	return out[:min(len(out), assess.MaxPulls)], nil
}

// pullsOf returns what was pulled for one pod.
func pullsOf(p *corev1.Pod, events []corev1.Event, node *corev1.Node, report wire.BootReport) (out []timeline.Pull) {
	since := assess.BootStart(report).Add(-time.Minute) // the node's clock may have been set since
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		pull := timeline.Pull{Image: c.Image, Holds: c.ImagePullPolicy != corev1.PullAlways}
		undigested, _, _ := strings.Cut(c.Image, "@sha") // as spans name it
		names := []string{c.Image, undigested, undigested + ":latest"}
		for i := range events {
			e := &events[i]
			image, took, bytes := pulled(e.Message)
			if slices.Contains(names, image) && e.Reason == "Pulled" && e.Source.Host == node.Name && !e.LastTimestamp.Time.Before(since) {
				pull.Took, pull.Bytes = max(pull.Took, took), max(pull.Bytes, bytes)
			}
		}
		for _, s := range report.Spans {
			image, ok := strings.CutPrefix(s.Name, "pull/")
			if pull.Took == 0 && s.Source == "containerd" && !s.Open && s.Result == "" && ok && slices.Contains(names, image) {
				pull.Took = s.End - s.Start
			}
		}
		for _, i := range node.Status.Images {
			if pull.Bytes == 0 && slices.ContainsFunc(names, func(n string) bool { return slices.Contains(i.Names, n) }) {
				pull.Bytes = min(max(i.SizeBytes, 0), largePull)
			}
		}
		if pull.Took > 0 {
			out = append(out, pull)
		}
	}
	return out
}

// pulled reads the kubelet's message of a pull, and of an image that was there already nothing:
//
//	Successfully pulled image "IMAGE" in 1.2s (3.4s including waiting). Image size: 123 bytes.
//
// Earlier kubelets write no size. Source of fact: pkg/kubelet/images/image_manager.go.
func pulled(message string) (image string, took wire.Micros, bytes int64) {
	rest, ok := strings.CutPrefix(message, "Successfully pulled image ")
	quoted, err := strconv.QuotedPrefix(rest)
	if !ok || err != nil {
		return "", 0, 0
	}
	image, _ = strconv.Unquote(quoted) // it is a quoted prefix
	in, after, _ := strings.Cut(strings.TrimPrefix(rest[len(quoted):], " in "), " ")
	if d, err := time.ParseDuration(in); err == nil && d > 0 && d <= longPull {
		took = max(wire.MicrosOf(d), 1)
	}
	if _, size, ok := strings.Cut(after, "Image size: "); ok {
		size, _, _ = strings.Cut(size, " ")
		if n, err := strconv.ParseInt(size, 10, 64); err == nil && n > 0 && n <= largePull {
			bytes = n
		}
	}
	return image, took, bytes
}

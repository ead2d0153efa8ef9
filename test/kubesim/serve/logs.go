package serve

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxRefusal bounds what is read of a kubelet's refusal, in bytes.
const maxRefusal = 4 << 10

// kubeletLog asks the kubelet of a pod's node for a container's log, as the API
// server does: what the kubelet refuses is refused in its words.
func (c *Cluster) kubeletLog(ctx context.Context, pod *corev1.Pod, container string, query url.Values) (io.ReadCloser, error) {
	node := c.Kube.Node(pod.Spec.NodeName)
	if node == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: no node assigned", container, pod.Name))
	}
	var host string
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			host = address.Address
		}
	}
	endpoint := url.URL{
		Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port))),
		Path: "/containerLogs/" + pod.Namespace + "/" + pod.Name + "/" + container, RawQuery: query.Encode(),
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := c.kubelets.Do(request)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("ask the kubelet of node %s for the log: %w", node.Name, err))
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("read the answer of node %s: %w", node.Name, err))
	}
	return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(response.StatusCode), Reason: metav1.StatusReasonBadRequest, // #nosec G115 -- a status code
		Message: strings.TrimSpace(string(text)),
	}}
}

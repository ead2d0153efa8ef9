package kubesim

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// log serves what a pod's only container printed.
func (s *Server) log(c *call, t *table) (answer, error) {
	e := t.entries[c.key()]
	if e == nil {
		return answer{}, apierrors.NewNotFound(t.kind.groupResource(), c.Name)
	}
	pod, ok := e.object.(*corev1.Pod)
	if !ok {
		return answer{}, apierrors.NewNotFound(t.kind.groupResource(), c.Name)
	}
	container := c.parameter("container")
	known := false
	for _, one := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		container = cmp.Or(container, one.Name)
		known = known || one.Name == container
	}
	if !known {
		return answer{}, apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", container, c.Name))
	}
	if ask := s.KubeletLog; ask != nil {
		return answer{later: func() (answer, error) {
			stream, err := ask(c.ctx, pod, container, c.rawURL.Query())
			return answer{code: http.StatusOK, contentType: "text/plain", stream: stream}, err
		}}, nil
	}
	hook := s.Log
	return answer{later: func() (answer, error) {
		var printed []byte
		if hook != nil {
			printed = hook(pod.Namespace, pod.Name)
		}
		if printed == nil {
			return answer{}, apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: ContainerCreating", container, pod.Name))
		}
		return c.part(printed)
	}}, nil
}

// part returns as much of a log as is asked for.
func (c *call) part(printed []byte) (answer, error) {
	if text := c.parameter("tailLines"); text != "" {
		lines, err := strconv.Atoi(text)
		if err != nil || lines < 0 {
			return answer{}, apierrors.NewBadRequest("tailLines " + text + " is no number")
		}
		printed = tail(printed, lines)
	}
	if text := c.parameter("limitBytes"); text != "" {
		most, err := strconv.Atoi(text)
		if err != nil || most < 1 {
			return answer{}, apierrors.NewBadRequest("limitBytes " + text + " is no number")
		}
		printed = printed[:min(len(printed), most)]
	}
	return answer{code: http.StatusOK, contentType: "text/plain", body: printed}, nil
}

// tail returns the last lines.
func tail(text []byte, lines int) []byte {
	from := len(text)
	if from > 0 && text[from-1] == '\n' {
		from--
	}
	for ; lines > 0; lines-- {
		if from = bytes.LastIndexByte(text[:from], '\n'); from < 0 {
			return text
		}
	}
	return text[min(from+1, len(text)):]
}

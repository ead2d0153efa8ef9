package hollow

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mountVolumes makes the pod's volumes, and says in its status while it cannot.
func (p *pod) mountVolumes(spec *corev1.Pod) (map[string]string, bool) {
	for retry := time.Second; ; retry = min(2*retry, 30*time.Second) {
		volumes, err := p.volumes(spec)
		if err == nil {
			return volumes, true
		}
		p.mu.Lock()
		for _, c := range p.containers {
			if c.state.Waiting != nil {
				c.state.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: err.Error()}
			}
		}
		p.mu.Unlock()
		p.changed()
		if !p.pause(retry) {
			return nil, false
		}
	}
}

// volumes returns the folder of each volume, by name.
func (p *pod) volumes(spec *corev1.Pod) (map[string]string, error) {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	api := p.r.substrate.client.CoreV1()
	volumes := map[string]string{}
	for _, v := range spec.Spec.Volumes {
		folder := filepath.Join(p.dir, "volumes", v.Name)
		var err error
		switch {
		case v.HostPath != nil:
			folder, err = p.r.hostPath(v.HostPath)
		case v.EmptyDir != nil, v.DownwardAPI != nil, v.Projected != nil:
			err = os.MkdirAll(folder, 0o700)
		case v.Secret != nil:
			secret, getErr := api.Secrets(p.name.Namespace).Get(p.ctx, v.Secret.SecretName, metav1.GetOptions{})
			if err = getErr; err == nil {
				err = writeKeys(folder, secret.Data, v.Secret.Items)
			}
		case v.ConfigMap != nil:
			object, getErr := api.ConfigMaps(p.name.Namespace).Get(p.ctx, v.ConfigMap.Name, metav1.GetOptions{})
			if err = getErr; err == nil {
				data := map[string][]byte{}
				for key, text := range object.Data {
					data[key] = []byte(text)
				}
				err = writeKeys(folder, data, v.ConfigMap.Items)
			}
		default:
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("MountVolume.SetUp failed for volume %q: %w", v.Name, err)
		}
		volumes[v.Name] = folder
	}
	return volumes, nil
}

// hostPath returns the folder on the node's tree, checked as the kubelet does.
func (r *running) hostPath(source *corev1.HostPathVolumeSource) (string, error) {
	folder, err := r.tree.resolve(source.Path, true)
	if err != nil {
		return "", err
	}
	kind := corev1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	info, err := os.Stat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist) && kind == corev1.HostPathFileOrCreate:
		return folder, os.WriteFile(folder, nil, 0o644)
	case errors.Is(err, fs.ErrNotExist) && (kind == corev1.HostPathDirectoryOrCreate || kind == corev1.HostPathUnset):
		return folder, os.MkdirAll(folder, 0o755)
	case err != nil:
		return "", err
	case kind == corev1.HostPathDirectory && !info.IsDir():
		return "", fmt.Errorf("hostPath type check failed: %s is not a directory", source.Path)
	case kind == corev1.HostPathFile && !info.Mode().IsRegular():
		return "", fmt.Errorf("hostPath type check failed: %s is not a file", source.Path)
	}
	return folder, nil
}

func writeKeys(folder string, data map[string][]byte, items []corev1.KeyToPath) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if len(items) == 0 {
		for key := range data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok {
			return fmt.Errorf("references non-existent key %q", item.Key)
		}
		if err := tree(folder).writeFile(item.Path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

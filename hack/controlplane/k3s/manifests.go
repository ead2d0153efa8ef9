package k3s

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// roleBindings are the rights of an agent's controller, which makes routes. Source:
// k3s-io/k3s, manifests/rolebindings.yaml; for what this one needs.
const roleBindings = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:k3s-controller}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:k3s-controller}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:k3s-controller}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: system:k3s-controller}
`

// A deployer applies the files of the manifests folder.
type deployer struct {
	client  dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	applied map[string][sha256.Size]byte
}

// deployManifests applies the folder's files at the start and when they change,
// until ctx ends. What is taken out of a file, or the file itself, leaves its
// objects in the cluster.
func deployManifests(ctx context.Context, config *rest.Config, dir string, disabled []string) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		logrus.Fatal(err)
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		logrus.Fatal(err)
	}
	d := &deployer{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoverer)), applied: map[string][sha256.Size]byte{}}
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	for {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			name := strings.TrimSuffix(entry.Name(), filepath.Ext(path))
			if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) || slices.Contains(disabled, name) {
				return err
			}
			if _, err := os.Stat(path + ".skip"); err == nil {
				return nil
			}
			if err := d.deploy(ctx, path); err != nil {
				logrus.Errorf("Failed to process config: failed to process %s: %v", path, err)
			}
			return nil
		})
		if err != nil {
			logrus.Errorf("Failed to process config: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// deploy applies a file that has changed. All of its objects are tried.
func (d *deployer) deploy(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	if d.applied[path] == sum {
		return nil
	}
	var failed error
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if len(object.Object) == 0 {
			continue
		}
		items := []unstructured.Unstructured{object}
		if object.IsList() {
			l, err := object.ToList()
			if err != nil {
				return err
			}
			items = l.Items
		}
		for i := range items {
			failed = errors.Join(failed, d.apply(ctx, &items[i]))
		}
	}
	if failed == nil {
		d.applied[path] = sum
		logrus.Infof("Applied manifest %s", path)
	}
	return failed
}

func (d *deployer) apply(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := d.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		d.mapper.Reset() // its definition may have been applied just now
	}
	if err != nil {
		return err
	}
	var target dynamic.ResourceInterface = d.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		target = d.client.Resource(mapping.Resource).Namespace(namespace)
	}
	if _, err := target.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "deploy@k3s", Force: true}); err != nil {
		return fmt.Errorf("apply %s %s: %w", kind.Kind, object.GetName(), err)
	}
	return nil
}

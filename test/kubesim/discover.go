package kubesim

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// discover serves, in JSON, what needs no resource: the server's version and
// health, and which groups and resources there are.
func (s *Server) discover(c *call) (answer, error) {
	if err := s.authorize(c); err != nil {
		return answer{}, err
	}
	if c.Verb != "get" {
		return answer{}, c.notServed()
	}
	path := strings.TrimSuffix(c.Path, "/")
	switch path {
	case "/version":
		return document(version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3", Platform: "linux/amd64"})
	case "/readyz", "/livez", "/healthz":
		return answer{code: http.StatusOK, contentType: "text/plain; charset=utf-8", body: []byte("ok")}, nil
	case "/api":
		return document(metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case "/apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
		for _, k := range s.served() {
			known := slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == k.group })
			if k.group != "" && !known {
				list.Groups = append(list.Groups, k.groupForDiscovery())
			}
		}
		return document(list)
	}
	name := strings.TrimPrefix(path, "/apis/")
	for _, k := range s.served() {
		if k.group != "" && k.group == name {
			return document(k.groupForDiscovery())
		}
	}
	if name == "/api/v1" {
		name = "v1"
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: name}
	for _, k := range s.served() {
		if k.groupVersion() == name {
			list.APIResources = append(list.APIResources, k.resources()...)
		}
	}
	if len(list.APIResources) == 0 {
		return answer{}, c.notServed()
	}
	return document(list)
}

// served returns the kinds, by resource.
func (s *Server) served() []*kind {
	var all []*kind
	for _, resource := range slices.Sorted(maps.Keys(s.tables)) {
		if k := s.tables[resource].kind; !k.custom || s.Machines {
			all = append(all, k)
		}
	}
	return all
}

func (k *kind) groupForDiscovery() metav1.APIGroup {
	here := metav1.GroupVersionForDiscovery{GroupVersion: k.groupVersion(), Version: k.version}
	return metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"},
		Name:     k.group, Versions: []metav1.GroupVersionForDiscovery{here}, PreferredVersion: here,
	}
}

// resources are the kind's with its subresources.
func (k *kind) resources() []metav1.APIResource {
	all := []metav1.APIResource{{
		Name: k.resource, SingularName: strings.ToLower(k.name), Kind: k.name, Namespaced: k.namespaced, ShortNames: k.short,
		Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
	}}
	if k.status {
		all = append(all, metav1.APIResource{Name: k.resource + "/status", Kind: k.name, Namespaced: k.namespaced, Verbs: metav1.Verbs{"get", "patch", "update"}})
	}
	switch k.resource {
	case "pods", "replicasets", "daemonsets":
		all[0].Categories = []string{"all"} // kubectl get all
	}
	switch k.resource {
	case "pods":
		all = append(all,
			metav1.APIResource{Name: "pods/eviction", Kind: "Eviction", Group: "policy", Version: "v1", Namespaced: true, Verbs: metav1.Verbs{"create"}},
			metav1.APIResource{Name: "pods/log", Kind: k.name, Namespaced: true, Verbs: metav1.Verbs{"get"}})
	case "certificatesigningrequests":
		all = append(all, metav1.APIResource{Name: k.resource + "/approval", Kind: k.name, Verbs: metav1.Verbs{"get", "patch", "update"}})
	}
	return all
}

func document(value any) (answer, error) {
	data, err := json.Marshal(value)
	return answer{code: http.StatusOK, contentType: contentJSON, body: data}, err
}

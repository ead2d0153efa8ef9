package kubesim

import (
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

// discover serves the group that an address names, and the server's version, in
// JSON.
func (s *Server) discover(c *call) (answer, error) {
	if err := s.authorize(c); err != nil {
		return answer{}, err
	}
	if c.Verb != "get" {
		return notServed(), nil
	}
	if c.Path == "/version" {
		return document(version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3"})
	}
	name, ok := strings.CutPrefix(strings.TrimSuffix(c.Path, "/"), "/apis/")
	if !ok || name == machineGroup && !s.Machines {
		return notServed(), nil
	}
	for _, t := range s.tables {
		if t.kind.group != name {
			continue
		}
		here := metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + t.kind.version, Version: t.kind.version}
		return document(metav1.APIGroup{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"},
			Name:     name, Versions: []metav1.GroupVersionForDiscovery{here}, PreferredVersion: here,
		})
	}
	return notServed(), nil
}

func document(value any) (answer, error) {
	data, err := json.Marshal(value)
	return answer{code: http.StatusOK, contentType: contentJSON, body: data}, err
}

package fault

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Name is the name under which a scenario knows a request: its method, and its
// path after the API's version, without "namespaces". An access review, of which
// many are sent at once, is told apart by what it asks; its body is read for
// that and put back.
func Name(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[1:]
	}
	name := r.Method + " " + strings.Join(parts, "/")
	if parts[0] == "selfsubjectaccessreviews" {
		name += " of " + reviewed(r)
	}
	return name
}

// protobufMagic stands before Kubernetes' protobuf.
const protobufMagic = "k8s\x00"

// reviewed says what an access review asks.
func reviewed(r *http.Request) string {
	if r.Body == nil {
		return "something"
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close() // it was read to its end, or err says so
	r.Body = io.NopCloser(bytes.NewReader(body))
	var review authorizationv1.SelfSubjectAccessReview
	if encoded, ok := bytes.CutPrefix(body, []byte(protobufMagic)); ok {
		var envelope runtime.Unknown
		if err = envelope.Unmarshal(encoded); err == nil {
			err = review.Unmarshal(envelope.Raw)
		}
	} else if err == nil {
		err = json.Unmarshal(body, &review)
	}
	a := review.Spec.ResourceAttributes
	if err != nil || a == nil {
		return "something"
	}
	return strings.Join(strings.Fields(a.Verb+" "+a.Namespace+" "+a.Resource+" "+a.Subresource+" "+a.Name), " ")
}

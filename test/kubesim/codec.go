package kubesim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	sigsjson "sigs.k8s.io/json"
)

const (
	contentJSON  = "application/json"
	contentProto = "application/vnd.kubernetes.protobuf"
)

// magic stands before everything that Kubernetes writes as protocol buffers.
// What follows is a runtime.Unknown: the type's name, and the object.
var magic = []byte("k8s\x00")

// Protocol buffers' tags of the fields that are written by hand here, all of
// them of bytes.
const (
	firstField  = 0x0a
	secondField = 0x12
)

func appendField(to []byte, tag byte, value []byte) []byte {
	return append(binary.AppendUvarint(append(to, tag), uint64(len(value))), value...)
}

// envelope is what stands before the length of an object of the kind.
func envelope(group, version, kind string) []byte {
	apiVersion := schema.GroupVersion{Group: group, Version: version}.String()
	typeMeta := appendField(appendField(nil, firstField, []byte(apiVersion)), secondField, []byte(kind))
	return append(appendField(bytes.Clone(magic), firstField, typeMeta), secondField)
}

func wrapped(envelope, raw []byte) []byte {
	out := make([]byte, 0, len(envelope)+binary.MaxVarintLen64+len(raw))
	out = binary.AppendUvarint(append(out, envelope...), uint64(len(raw)))
	return append(out, raw...)
}

// accepted returns the content type of an answer; "" where none of what is
// accepted can be given.
func accepted(accept string, protobuf bool) string {
	if accept == "" {
		return contentJSON
	}
	for one := range strings.SplitSeq(accept, ",") {
		one, parameters, _ := strings.Cut(one, ";")
		if strings.Contains(parameters, "as=") {
			continue // see asTable; partial objects are not served
		}
		switch strings.TrimSpace(one) {
		case contentProto:
			if protobuf {
				return contentProto
			}
		case contentJSON, "*/*", "application/*":
			return contentJSON
		}
	}
	return ""
}

// decode reads a request's body.
func decode(contentType string, body []byte, into any) error {
	contentType, _, _ = strings.Cut(contentType, ";")
	switch contentType {
	case contentProto:
		target, ok := into.(message)
		if !ok {
			break
		}
		if !bytes.HasPrefix(body, magic) {
			return apierrors.NewBadRequest("the body is no protocol buffer of Kubernetes")
		}
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(body[len(magic):]); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		if err := target.Unmarshal(unknown.Raw); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		return nil
	case contentJSON, "":
		var err error
		if o, ok := into.(*unstructured.Unstructured); ok {
			err = o.UnmarshalJSON(body)
		} else {
			err = sigsjson.UnmarshalCaseSensitivePreserveInts(body, into)
		}
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		return nil
	}
	return apierrors.NewGenericServerResponse(415, "", schema.GroupResource{}, "", fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s, %s", contentJSON, contentProto), 0, false)
}

// encoded returns the object's bytes, which for JSON are complete and for
// protocol buffers lack the envelope. They are kept with it. The caller holds
// the lock.
func (e *entry) encoded(contentType string) ([]byte, error) {
	if contentType == contentProto {
		if e.proto == nil {
			data, err := e.object.(message).Marshal()
			if err != nil {
				return nil, err
			}
			e.proto = data
		}
		return e.proto, nil
	}
	if e.json == nil {
		data, err := json.Marshal(e.object)
		if err != nil {
			return nil, err
		}
		e.json = data
	}
	return e.json, nil
}

// one is an answer with one object.
func (c *call) one(code int, e *entry) (answer, error) {
	if c.table {
		return c.tabled(code, metav1.ListMeta{ResourceVersion: e.object.GetResourceVersion()}, []*entry{e})
	}
	data, err := e.encoded(c.accept)
	if err != nil {
		return answer{}, err
	}
	if c.accept == contentProto {
		data = wrapped(c.kind.envelope, data)
	}
	return answer{code: code, contentType: c.accept, body: data}, nil
}

// many is an answer with a list. A list of any kind is its ListMeta and then
// the items, so that it is put together of what is encoded already.
func (c *call) many(meta metav1.ListMeta, items []*entry) (answer, error) {
	if c.table {
		return c.tabled(http.StatusOK, meta, items)
	}
	size := 256
	for _, e := range items {
		data, err := e.encoded(c.accept)
		if err != nil {
			return answer{}, err
		}
		size += len(data) + binary.MaxVarintLen32 + 1
	}
	out := make([]byte, 0, size)
	if c.accept == contentProto {
		head, err := meta.Marshal()
		if err != nil {
			return answer{}, err
		}
		out = appendField(out, firstField, head)
		for _, e := range items {
			out = appendField(out, secondField, e.proto)
		}
		return answer{code: 200, contentType: c.accept, body: wrapped(c.kind.listEnvelope, out)}, nil
	}
	head, err := json.Marshal(meta)
	if err != nil {
		return answer{}, err
	}
	out = fmt.Appendf(out, `{"kind":%s,"apiVersion":%s,"metadata":%s,"items":[`,
		strconv.Quote(c.kind.name+"List"), strconv.Quote(c.kind.groupVersion()), head)
	for i, e := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e.json...)
	}
	return answer{code: 200, contentType: c.accept, body: append(out, "]}"...)}, nil
}

// said is an answer with an object that is not stored.
func said(accept string, code int, gvk schema.GroupVersionKind, o runtime.Object) answer {
	o.GetObjectKind().SetGroupVersionKind(gvk)
	if accept == contentProto {
		if m, ok := o.(message); ok {
			if data, err := m.Marshal(); err == nil {
				return answer{code: code, contentType: accept, body: wrapped(envelope(gvk.Group, gvk.Version, gvk.Kind), data)}
			}
		}
	}
	data, err := json.Marshal(o)
	if err != nil {
		return answer{code: 500, contentType: "text/plain; charset=utf-8", body: []byte(err.Error())}
	}
	return answer{code: code, contentType: contentJSON, body: data}
}

package file

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"
	kubelet "k8s.io/kubelet/config/v1beta1"
	strictjson "sigs.k8s.io/json"

	"github.com/ortet/ortet/internal/nodeconfig"
	"github.com/ortet/ortet/internal/yamlfile"
)

// since has the kubelet's minor version, 1.N, in which a field first was. Source: the
// types in config/v1beta1 of k8s.io/kubelet, v0.26.0 to v0.36.3.
var since = map[string]uint{
	"containerRuntimeEndpoint": 27, "enableSystemLogQuery": 27, "imageServiceEndpoint": 27, "maxParallelImagePulls": 27,
	"imageMaximumGCAge":      29,
	"containerLogMaxWorkers": 30, "containerLogMonitorInterval": 30, "podLogsDir": 30,
	"failCgroupV1":     31,
	"crashLoopBackOff": 32, "singleProcessOOMKill": 32,
	"imagePullCredentialsVerificationPolicy": 33, "mergeDefaultEvictionSettings": 33, "preloadedImagesVerificationAllowlist": 33, "userNamespaces": 33,
	"memoryReservationPolicy": 36, "tlsCurvePreferences": 36,
}

// CheckKubelet says which kubelet fields the kubelets of a pool lack; a kubelet drops
// those from a drop-in without a message. versions are as Nodes report them, "v1.34.1".
func CheckKubelet(c nodeconfig.Config, versions []string) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(c.Kubelet)) {
		var lacking []string
		for _, text := range slices.Compact(slices.Sorted(slices.Values(versions))) {
			v, err := version.ParseGeneric(text)
			if err != nil {
				return fmt.Errorf("check kubelet fields: read kubelet version %q: %w", text, err)
			}
			if v.LessThan(version.MajorMinor(1, since[name])) {
				lacking = append(lacking, text)
			}
		}
		if len(lacking) > 0 {
			problems = append(problems, fmt.Errorf("check kubelet fields: %s needs a kubelet of v1.%d or newer, and the pool has %s; delete the field, or upgrade the pool first",
				name, since[name], strings.Join(lacking, ", ")))
		}
	}
	return errors.Join(problems...)
}

// kubelet decodes each field by itself, so that an error of a type belongs to a field.
func (p parser) kubelet(fields map[string]any) {
	const in = "spec.kubelet"
	for name, value := range fields {
		at := yamlfile.Join(in, name)
		if cause := nodeconfig.RefuseKubelet(name); cause != "" {
			p.At(at, cause)
			continue
		}
		text, err := json.Marshal(map[string]any{name: value})
		if err != nil {
			p.At(at, "cannot be encoded: "+err.Error()+"; correct it")
			continue
		}
		var into kubelet.KubeletConfiguration
		unknown, err := strictjson.UnmarshalStrict(text, &into)
		var wrong *json.UnmarshalTypeError
		switch {
		case errors.As(err, &wrong):
			kind, _, _ := strings.Cut(wrong.Value, " ")
			field := in + "." + cmp.Or(wrong.Field, name)
			// The library names no entry of a mapping.
			if entries, ok := value.(map[string]any); ok && field == at && wrong.Type.Kind() == reflect.String {
				for _, entry := range slices.Sorted(maps.Keys(entries)) {
					if _, text := entries[entry].(string); !text {
						field = yamlfile.Join(at, entry)
					}
				}
			}
			p.At(field, "is "+typeNames[kind]+", and the kubelet takes "+wrong.Type.String()+"; correct it")
		case err != nil:
			p.At(at, strings.TrimPrefix(err.Error(), "json: ")+"; correct it")
		}
		for _, u := range unknown {
			var f strictjson.FieldError
			if errors.As(u, &f) {
				p.At(in+"."+f.FieldPath(), "unknown field of KubeletConfiguration (v1beta1, as of Kubernetes 1.36)"+suggest(f.FieldPath()))
			}
		}
		p.reserved(at, name, value)
	}
}

// reserved checks quantities, which the types do not.
func (p parser) reserved(at, name string, value any) {
	if reserved, ok := value.(map[string]any); ok && (name == "systemReserved" || name == "kubeReserved") {
		for of, amount := range reserved {
			// Source: the kubelet's parseResourceList, which ends it at others.
			if !slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "pid"}, of) {
				p.At(yamlfile.Join(at, of), "cannot be reserved; use cpu, memory, ephemeral-storage or pid")
			}
			if text, ok := amount.(string); ok {
				if _, err := resource.ParseQuantity(text); err != nil {
					p.At(yamlfile.Join(at, of), yamlfile.Quote(text)+" is not a quantity; use one such as 500Mi or 250m")
				}
			}
		}
	}
}

// typeNames are JSON's types, as its decoder's errors name them, in YAML's terms.
var typeNames = map[string]string{"string": "text", "number": "a number", "bool": "true or false", "array": "a list", "object": "a mapping"}

// suggest names the field that is spelled most like the last part of a path.
func suggest(path string) string {
	t, parts := reflect.TypeFor[kubelet.KubeletConfiguration](), strings.Split(path, ".")
	for _, part := range parts[:len(parts)-1] {
		name, _, _ := strings.Cut(part, "[")
		if t = fieldsOf(t)[name]; t == nil {
			return "; delete it"
		}
	}
	// By the rule of commands that are misspelt.
	known := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range slices.Sorted(maps.Keys(fieldsOf(t))) {
		known.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	if like := known.SuggestionsFor(parts[len(parts)-1]); len(like) > 0 {
		return "; did you mean " + strings.Join(like, " or ") + "?"
	}
	return "; delete it"
}

// fieldsOf are a struct's fields by their names in JSON, also of one behind pointers,
// lists and mappings.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	all := map[string]reflect.Type{}
	if t.Kind() == reflect.Struct {
		for f := range t.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				all[name] = f.Type
			}
		}
	}
	return all
}

//go:build e2e

package charts

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestOperatorMonitoring(t *testing.T) {
	on := func(set string) map[string][][]byte {
		return renderOrtet(t, append(slices.Clone(operating), "--set", set)...)
	}
	for _, set := range []string{"operator.maxRuns=4", "operator.enabled=false,operator.alerts.enabled=true,operator.serviceMonitor.enabled=true"} {
		if o := on(set); o["PrometheusRule"] != nil || o["ServiceMonitor"] != nil {
			t.Errorf("%s makes kinds that the API server may not have", set)
		}
	}
	var rule struct {
		Metadata struct{ Labels map[string]string }
		Spec     struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr         string
					Annotations, Labels map[string]string
				}
			}
		}
	}
	o := on("operator.alerts.enabled=true,operator.alerts.labels.release=prometheus,operator.alerts.imageAge=20d,operator.serviceMonitor.enabled=true")
	if err := yaml.Unmarshal(o["PrometheusRule"][0], &rule); err != nil {
		t.Fatal(err)
	}
	if rule.Metadata.Labels["release"] != "prometheus" || len(rule.Spec.Groups) != 1 || len(rule.Spec.Groups[0].Rules) != 7 {
		t.Fatalf("%+v", rule)
	}
	for _, r := range rule.Spec.Groups[0].Rules {
		about := r.Annotations["summary"] + r.Annotations["description"]
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" || strings.Contains(about, "{{") && !strings.Contains(about, "{{ $labels.pool }}") {
			t.Errorf("%+v", r)
		}
		if r.Alert == "OrtetImageOld" && !strings.HasSuffix(r.Expr, " > 1728000") {
			t.Errorf("20 days are %s", r.Expr)
		}
	}
	var monitor struct {
		Spec struct {
			Selector  struct{ MatchLabels map[string]string }
			Endpoints []struct{ Port string }
		}
	}
	var service corev1.Service
	for _, doc := range o["Service"] {
		if bytes.Contains(doc, []byte("component: operator")) {
			if err := yaml.Unmarshal(doc, &service); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := yaml.Unmarshal(o["ServiceMonitor"][0], &monitor); err != nil {
		t.Fatal(err)
	}
	for label, value := range monitor.Spec.Selector.MatchLabels {
		if service.Labels[label] != value {
			t.Errorf("the Service has %s=%s, and the ServiceMonitor selects %s", label, service.Labels[label], value)
		}
	}
	if e := monitor.Spec.Endpoints; len(e) != 1 || len(service.Spec.Ports) != 1 || e[0].Port != service.Spec.Ports[0].Name || !strings.Contains(rule.Spec.Groups[0].Rules[6].Expr, `job="`+service.Name+`"`) {
		t.Errorf("%+v of %+v", e, service.Spec.Ports)
	}
}

func TestOperatorNotifies(t *testing.T) {
	o := renderOrtet(t, append(slices.Clone(operating), "--set", "operator.notify.url=https://hooks.example/x,operator.notify.secret=hook")...)
	d := string(ofOperator(o["Deployment"])[0])
	for _, want := range []string{"- --notify=https://hooks.example/x\n", "- --notify-secret-file=/etc/ortet/notify/secret\n", "secretName: hook", "mountPath: /etc/ortet/notify"} {
		if !strings.Contains(d, want) {
			t.Errorf("no %s in\n%s", want, d)
		}
	}
	if out, err := helm(t, append([]string{"template", "r", "ortet", "--set", "operator.notify.url=http://169.254.169.254/"}, operating...)...); err == nil {
		t.Errorf("http is accepted: %s", out)
	}
}

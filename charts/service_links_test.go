//go:build e2e

package charts

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Kubernetes sets ORTET_PORT in the pods beside a Service named ortet, and ortet reads
// its flags from such variables.
func TestPodsGetNoVariablesOfServices(t *testing.T) {
	pool := "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/p"
	deployments := renderOrtet(t, "--set", "admission.enabled=true,admission.pools={"+pool+"},admission.names={10.0.0.4}")["Deployment"]
	if len(deployments) != 2 {
		t.Fatalf("%d Deployments, want the controller's and the admission server's", len(deployments))
	}
	var pods []corev1.PodSpec
	for _, doc := range deployments {
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict(doc, &d); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, d.Spec.Template.Spec)
	}
	var c batchv1.CronJob
	if err := yaml.UnmarshalStrict(render(t, "--set", "kamino.targetVMSS=ALL,kamino.auto.cronjob.enabled=true")["CronJob"][0], &c); err != nil {
		t.Fatal(err)
	}
	pods = append(pods, job(t, "--set", "kamino.targetNode="+node).Spec.Template.Spec, c.Spec.JobTemplate.Spec.Template.Spec)
	for _, p := range pods {
		if p.EnableServiceLinks == nil || *p.EnableServiceLinks {
			t.Errorf("%s: enableServiceLinks is %v, want false", p.Containers[0].Name, p.EnableServiceLinks)
		}
	}
}

{{- define "ortet.admission.name" -}}
{{- printf "%s-admission" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Cluster-wide names carry the release's, so that two releases do not collide. */}}
{{- define "ortet.admission.clusterName" -}}
{{- printf "ortet-admission:%s:%s" .Release.Namespace .Release.Name -}}
{{- end -}}

{{/* Names of policies are DNS names. */}}
{{- define "ortet.admission.policyName" -}}
{{- printf "%s-%s.ortet.io" .Release.Namespace .Release.Name -}}
{{- end -}}

{{- define "ortet.admission.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: admission
{{- end -}}

{{- define "ortet.admission.labels" -}}
{{ include "ortet.admission.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "ortet.name" -}}
{{- printf "%s-controller" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Cluster-wide names carry the release's, so that two releases do not collide. */}}
{{- define "ortet.clusterName" -}}
{{- printf "ortet:%s:%s" .Release.Namespace .Release.Name -}}
{{- end -}}

{{- define "ortet.image" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is not set, and no image of Ortet is published: build one with make image, push bin/ortet-image.tar to a registry that the nodes pull from, and set image.repository=REGISTRY/ortet with image.tag or image.digest" -}}
{{- end -}}
{{- if and .Values.image.digest .Values.image.tag -}}
{{- fail (printf "image.tag is %s and image.digest is %s, which may be the chart's default: set image.digest= for the tag, or image.tag= for the digest" .Values.image.tag .Values.image.digest) -}}
{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (required "set image.tag or image.digest" .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "ortet.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "ortet.labels" -}}
{{ include "ortet.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "ortet.operator.name" -}}
{{- printf "%s-operator" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ortet.operator.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "ortet.operator.labels" -}}
{{ include "ortet.operator.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

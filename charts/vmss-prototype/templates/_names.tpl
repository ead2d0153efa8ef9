{{/* The Job's name: kamino.name and the scale set's, which is the node's less its six characters. */}}
{{- define "ortet.job" -}}
{{- $node := .Values.kamino.targetNode | default "" -}}
{{- if gt (len $node) 6 -}}
{{- printf "%s-%s" .Values.kamino.name (substr 0 (int (sub (len $node) 6)) $node) | trunc 52 | trimSuffix "-" | trimSuffix "." -}}
{{- else -}}
{{- printf "%s-%s" .Values.kamino.name "status" -}}
{{- end -}}
{{- end -}}

{{/* Cluster-wide names carry the release's, so that two releases do not collide. */}}
{{- define "ortet.clusterName" -}}
{{- printf "ortet:%s:%s" .Release.Namespace .Release.Name -}}
{{- end -}}

{{- define "ortet.serviceAccount" -}}
{{- printf "%s-%s" .Release.Name "vmss-prototype" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ortet.image" -}}
{{- $c := .Values.kamino.container -}}
{{- $name := $c.imageRepository -}}
{{- if $c.imageRegistry -}}{{- $name = printf "%s/%s" $c.imageRegistry $c.imageRepository -}}{{- end -}}
{{- if $c.pullByHash -}}
{{- printf "%s@sha256:%s" $name (required "kamino.container.pullByHash needs kamino.container.imageHash" $c.imageHash) -}}
{{- else -}}
{{- printf "%s:%s" $name (required "set kamino.container.imageTag, or pullByHash with imageHash" $c.imageTag) -}}
{{- end -}}
{{- end -}}

{{- define "ortet.labels" -}}
{{- range $k, $v := .Values.kamino.labels -}}
{{ $k }}: {{ $v | quote }}
{{ end -}}
kamino: {{ include "ortet.job" . | quote }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The Job cannot run on the node that it stops. */}}
{{- define "ortet.notTarget" -}}
{{- with .Values.kamino.targetNode -}}
matchFields:
  - {key: metadata.name, operator: NotIn, values: [{{ . }}]}
{{- end -}}
{{- end -}}

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

{{/*
JSON list of the pools that are captured, by ARM id in lower case: ortet.pools, or else that
of the target node, where Helm reads the cluster (helm template does not). May be empty.
*/}}
{{- define "ortet.pools" -}}
{{- $pools := .Values.ortet.pools | default list -}}
{{- if and (not $pools) .Values.kamino.targetNode -}}
{{- $id := dig "spec" "providerID" "" (lookup "v1" "Node" "" .Values.kamino.targetNode) | trimPrefix "azure://" -}}
{{- if regexMatch "(?i)^/subscriptions/.+/virtualMachineScaleSets/[^/]+/virtualMachines/[^/]+$" $id -}}
{{- $pools = list (regexReplaceAll "/[^/]+/[^/]+$" $id "") -}}
{{- end -}}
{{- end -}}
{{- $lower := list -}}
{{- range $pools -}}{{- $lower = append $lower (lower .) -}}{{- end -}}
{{- toJson $lower -}}
{{- end -}}

{{/* JSON list of the Secrets of those pools; the code's objectName gives the same. */}}
{{- define "ortet.secrets" -}}
{{- $names := list -}}
{{- range $pool := include "ortet.pools" . | fromJsonArray -}}
{{- $last := regexReplaceAll "[^a-z0-9]" (base $pool) "-" | trunc 30 | trimAll "-" -}}
{{- range list "ortet-journal" "ortet-saved" -}}
{{- $names = append $names (printf "%s-%s-%s" . $last (sha256sum $pool | trunc 12)) -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/*
JSON list of Secrets in which earlier versions saved customData, one for each item and
named by its content: ortet.earlierSecrets, or else those that Helm finds.
*/}}
{{- define "ortet.earlierSecrets" -}}
{{- $names := list -}}
{{- if kindIs "slice" .Values.ortet.earlierSecrets -}}
{{- $names = .Values.ortet.earlierSecrets -}}
{{- else -}}
{{- range (lookup "v1" "Secret" .Values.ortet.namespace "").items -}}
{{- if and (eq .type "ortet.io/saved") (hasPrefix "ortet-saved-customdata-" .metadata.name) -}}
{{- $names = append $names .metadata.name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
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

{{/* The Job's name: kamino.name and the scale set's, which is the node's less its six characters. */}}
{{- define "ortet.job" -}}
{{- $node := .Values.kamino.targetNode | default "" -}}
{{- if .Values.kamino.targetVMSS -}}
{{- printf "%s-%s" .Values.kamino.name "autoupdate" -}}
{{- else if gt (len $node) 6 -}}
{{- printf "%s-%s" .Values.kamino.name (substr 0 (int (sub (len $node) 6)) $node) | trunc 52 | trimSuffix "-" | trimSuffix "." -}}
{{- else -}}
{{- printf "%s-%s" .Values.kamino.name "status" -}}
{{- end -}}
{{- end -}}

{{/* Not empty where a CronJob is made instead of a Job. */}}
{{- define "ortet.cron" -}}
{{- if dig "cronjob" "enabled" false (.Values.kamino.auto | default dict) -}}true{{- end -}}
{{- end -}}

{{/* Keys of each level of the values; a test compares them with the schema. */}}
{{- define "ortet.known" -}}
"": [global, kamino, ortet]
kamino: [auto, container, drain, imageHistory, jobTtl, labels, logLevel, name, newUpdatedNodes, scheduleOnControlPlane, targetNode, targetVMSS]
kamino.container: [imageHash, imageRegistry, imageRepository, imageTag, pullByHash, pullSecret]
kamino.drain: [force, gracePeriod]
kamino.auto: [cronjob, dryRun, lastPatchAnnotation, maximumImageAge, minimumCandidates, minimumReadyTime, pendingRebootAnnotation]
kamino.auto.cronjob: [enabled, schedule]
ortet: [acceptPoolCredentials, acceptSecrets, again, auto, bootstrap, deallocate, dryRun, earlierSecrets, exempt, extensions, keepExtensions, namespace, policy, pools, removeSecrets, replicas, resources, scanImages, workbench]
ortet.auto: [deadlineSeconds, failedJobsHistoryLimit, ignoreAnnotations, ignoreNodes, maxParallel, skipRules, startingDeadlineSeconds, successfulJobsHistoryLimit, timeZone]
{{- end -}}

{{/* Cluster-wide names carry the release's, so that two releases do not collide. */}}
{{- define "ortet.clusterName" -}}
{{- printf "ortet:%s:%s" .Release.Namespace .Release.Name -}}
{{- end -}}

{{- define "ortet.serviceAccount" -}}
{{- printf "%s-%s" .Release.Name "vmss-prototype" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
JSON list of the pools that are captured, by ARM id in lower case: ortet.pools, or else, where
Helm reads the cluster (helm template does not), that of the target node, those that are
named as targetVMSS, or with ALL those of all Nodes. May be empty.
*/}}
{{- define "ortet.pools" -}}
{{- $pools := list -}}
{{- $target := .Values.kamino.targetVMSS | default "" -}}
{{- if .Values.ortet.pools -}}
{{- $pools = .Values.ortet.pools -}}
{{- else if hasPrefix "/" $target -}}
{{- $pools = list $target -}}
{{- else -}}
{{- $nodes := list -}}
{{- if $target -}}
{{- $nodes = (lookup "v1" "Node" "" "").items | default list -}}
{{- else if .Values.kamino.targetNode -}}
{{- $nodes = list (lookup "v1" "Node" "" .Values.kamino.targetNode) -}}
{{- end -}}
{{- range $nodes -}}
{{- $id := dig "spec" "providerID" "" . | trimPrefix "azure://" -}}
{{- if regexMatch "(?i)^/subscriptions/.+/virtualMachineScaleSets/[^/]+/virtualMachines/[^/]+$" $id -}}
{{- $pool := regexReplaceAll "/[^/]+/[^/]+$" $id "" -}}
{{- if or (has $target (list "" "ALL")) (eq (lower $target) (base $pool | lower)) -}}
{{- $pools = append $pools $pool -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $lower := list -}}
{{- range $pools -}}{{- $lower = append $lower (lower .) -}}{{- end -}}
{{- uniq $lower | sortAlpha | toJson -}}
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

{{/* Not empty where the values name kamino's image, which this chart cannot run. */}}
{{- define "ortet.kaminosImage" -}}
{{- if hasSuffix "kamino/vmss-prototype" .Values.kamino.container.imageRepository -}}true{{- end -}}
{{- end -}}

{{- define "ortet.image" -}}
{{- $c := .Values.kamino.container -}}
{{- $name := $c.imageRepository -}}
{{- if $c.imageRegistry -}}{{- $name = printf "%s/%s" $c.imageRegistry $c.imageRepository -}}{{- end -}}
{{- if include "ortet.kaminosImage" . -}}
{{- printf "ghcr.io/ortet/ortet:v%s" .Chart.AppVersion -}}
{{- else if $c.pullByHash -}}
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

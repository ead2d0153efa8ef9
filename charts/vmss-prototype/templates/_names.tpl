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
ortet: [acceptPoolCredentials, acceptSecrets, again, auto, bootstrap, canary, canaryTest, deallocate, dryRun, earlierSecrets, exempt, extensions, fresh, image, keepExtensions, namespace, online, otherPools, patch, policy, pools, prepare, publishOnly, removeSecrets, replicas, resources, restoreLearned, scanImages, tune, watch, workbench]
ortet.canaryTest: [configMap, namespace]
ortet.prepare: [command, image, timeout]
ortet.auto: [deadlineSeconds, failedJobsHistoryLimit, ignoreAnnotations, ignoreNodes, maxParallel, resourceGroups, skipRules, startingDeadlineSeconds, successfulJobsHistoryLimit, timeZone]
{{- end -}}

{{/* The namespace of the canary's test; empty without one, as with values kept from an earlier chart. */}}
{{- define "ortet.testNamespace" -}}
{{- $test := .Values.ortet.canaryTest | default dict -}}
{{- if $test.configMap }}{{ $test.namespace }}{{ end -}}
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

{{/* The image that kamino.container names, "" for none. */}}
{{- define "ortet.containerImage" -}}
{{- $c := .Values.kamino.container -}}
{{- with $c.imageRepository -}}
{{- $name := . -}}
{{- with $c.imageRegistry -}}{{- $name = printf "%s/%s" . $name -}}{{- end -}}
{{- if $c.pullByHash -}}
{{- printf "%s@sha256:%s" $name (required "kamino.container.pullByHash needs kamino.container.imageHash" $c.imageHash) -}}
{{- else -}}
{{- printf "%s:%s" $name (required "set kamino.container.imageTag, or pullByHash with imageHash" $c.imageTag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Digests of all images that charts of kamino name, v0.0.3 to v0.1.0: a copy in another registry has them, too. */}}
{{- define "ortet.kaminosDigests" -}}
- a421ff768a798d581178626386c67117af2e2262dde334cef15d8f92df1a178f
- d154002ee4db8ca691357b7cc7ceb864d3e00f67a8a1be5554d749469d609c3f
- 26bef983e30edc597c932d8ca3246f949638fae738888109649f4e26a770f4a0
- 904b906e98009387f78cf2224be7805b27643cceba7c8bc03b35990b60df5a3f
- dfdb706f22afec76e69c0a9bbe8ed0bd163716d94575d2bccbad26e73f77a3a0
- e26ef9f67e07f666b6877196084f3ca95547835d83ba4d1e4d0892dc20c14faa
- 418cabda69afed714b33f5ee150c9683443725e9a8f7fb7d953f8372e34ad208
- 18668610ed57099107e8509c6293eb40bd6963da094dcfc3de0ced51732d8569
- c926412d8429d2a05c5cb926d32aed722ea9b80b742eafc2b7e9a0eb1b17b5eb
- be201a6a9de83aba5ebb38a6b3cddecddac6b2a5cc8d064d410810b0a43ab0e0
- a383124095bea6de2b90e4e2e81812f1796b63e641200f897cda1e0fcef0e621
{{- end -}}

{{/*
Ortet's image: ortet.image, or else what kamino.container names if its repository's last
part is "ortet". kamino's image has no /ortet to run, whatever a copy of it is called.
*/}}
{{- define "ortet.image" -}}
{{- $theirs := "" -}}
{{- if not .Values.ortet.image -}}{{- $theirs = include "ortet.containerImage" . -}}{{- end -}}
{{- $image := .Values.ortet.image | default $theirs -}}
{{- $build := "no image of Ortet is published: build one with make image, push bin/ortet-image.tar to a registry that the nodes pull from, and set ortet.image=REGISTRY/ortet:TAG" -}}
{{- if not $image -}}
{{- fail (printf "ortet.image is not set, and %s" $build) -}}
{{- end -}}
{{- if has (regexFind "[0-9a-f]{64}$" $image) (include "ortet.kaminosDigests" . | fromYamlArray) -}}
{{- fail (printf "%s is kamino's image by its digest, which cannot run Ortet, and %s" $image $build) -}}
{{- end -}}
{{- if and $theirs (ne (base .Values.kamino.container.imageRepository) "ortet") -}}
{{- fail (printf "kamino.container names %s, which is not known to be an image of Ortet: if it is one, set ortet.image=%s; otherwise, %s" $theirs $theirs $build) -}}
{{- end -}}
{{- $image -}}
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

{{/* Name and labels of the Job, or of the CronJob and its Jobs. */}}
{{- define "ortet.jobMetadata" -}}
name: {{ include "ortet.job" . }}
namespace: {{ .Release.Namespace }}
labels: {{- include "ortet.jobLabels" . | nindent 2 }}
{{- end -}}

{{- define "ortet.jobLabels" -}}
{{ include "ortet.labels" . }}
{{- with .Values.kamino.targetNode }}
targetNode: {{ . | trunc 63 | quote }}
{{- end }}
{{- with .Values.kamino.targetVMSS }}
targetVMSS: {{ base . | trunc 63 | trimAll "-_." | quote }}
{{- end }}
{{- end -}}

{{/* The spec of the Job, which is also that of the CronJob's Jobs. */}}
{{- define "ortet.jobSpec" -}}
# A pod that is killed or evicted is followed by another, which reads the
# journal and goes on; an answer of Ortet's own is final.
backoffLimit: 6
{{- if .Values.kamino.targetVMSS }}
# A Job that hangs would keep the CronJob from starting all later ones.
activeDeadlineSeconds: {{ dig "deadlineSeconds" 43200 (.Values.ortet.auto | default dict) | int64 }}
{{- end }}
{{- /* A CronJob's Jobs are kept by its history limits, so that the night's log is there in the morning. */}}
{{- if not (include "ortet.cron" .) }}
ttlSecondsAfterFinished: {{ .Values.kamino.jobTtl }}
{{- end }}
podFailurePolicy:
  rules:
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
    - action: FailJob
      onExitCodes:
        containerName: ortet
        operator: In
        values: [1, 2, 3, 4]
template:
  metadata:
    labels: {{- include "ortet.labels" . | nindent 6 }}
    annotations:
      cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
  spec:
    restartPolicy: Never
    # A Service named ortet would set variables that ortet reads as flags: ORTET_PORT.
    enableServiceLinks: false
    serviceAccountName: {{ include "ortet.serviceAccount" . }}
    # The donor is given back within this time when the pod is deleted, and the
    # pod ends as soon as it is: a stop that is under way, a start and a boot
    # usually take five minutes. The rest is resumed by the next.
    terminationGracePeriodSeconds: 900
    {{- with .Values.kamino.container.pullSecret }}
    imagePullSecrets:
      - name: {{ . }}
    {{- end }}
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
            {{- if .Values.kamino.scheduleOnControlPlane }}
            {{- range list "node-role.kubernetes.io/control-plane" "node-role.kubernetes.io/master" }}
            - matchExpressions:
                - {key: kubernetes.io/os, operator: In, values: [linux]}
                - {key: {{ . }}, operator: Exists}
              {{- include "ortet.notTarget" $ | nindent 14 }}
            {{- end }}
            # AKS Engine's own mark.
            - matchExpressions:
                - {key: kubernetes.io/os, operator: In, values: [linux]}
                - {key: kubernetes.io/role, operator: In, values: [master]}
              {{- include "ortet.notTarget" $ | nindent 14 }}
            {{- else }}
            - matchExpressions:
                - {key: kubernetes.io/os, operator: In, values: [linux]}
              {{- include "ortet.notTarget" $ | nindent 14 }}
            {{- end }}
    tolerations:
      - {key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}
      - {key: node-role.kubernetes.io/master, operator: Exists, effect: NoSchedule}
    containers:
      - name: ortet
        image: {{ include "ortet.image" . }}
        command: [/ortet]
        args: {{- include "ortet.arguments" . | nindent 10 }}
        env:
          # So that Ortet refuses to stop the node that it runs on.
          - name: NODE_NAME
            valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
          - name: POD_NAME
            valueFrom: {fieldRef: {fieldPath: metadata.name}}
          # The node trusts its cloud's certificates, which may be private.
          - name: SSL_CERT_FILE
            value: /etc/ssl/certs/ca-certificates.crt
        volumeMounts:
          - {name: azure-config, mountPath: /etc/kubernetes/azure.json, readOnly: true}
          - {name: certificates, mountPath: /etc/ssl/certs, readOnly: true}
          {{- if include "ortet.testNamespace" . }}
          - {name: canary-test, mountPath: /etc/ortet/canary-test, readOnly: true}
          {{- end }}
        securityContext:
          # azure.json belongs to root and is readable by root alone.
          runAsUser: 0
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
          seccompProfile: {type: RuntimeDefault}
        resources: {{- toYaml .Values.ortet.resources | nindent 10 }}
        terminationMessagePolicy: FallbackToLogsOnError
    volumes:
      # This file alone: beside it lie a control plane's keys.
      - name: azure-config
        hostPath: {path: /etc/kubernetes/azure.json, type: File}
      - name: certificates
        hostPath: {path: /etc/ssl/certs, type: Directory}
      {{- if include "ortet.testNamespace" . }}
      - name: canary-test
        configMap: {name: {{ .Values.ortet.canaryTest.configMap | quote }}}
      {{- end }}
{{- end -}}

{{/* The command line's arguments, as a list. */}}
{{- define "ortet.arguments" -}}
{{- $auto := .Values.kamino.auto | default dict -}}
{{- $ours := .Values.ortet.auto | default dict -}}
{{- if or .Values.kamino.targetNode .Values.kamino.targetVMSS -}}
- capture
{{- if .Values.kamino.targetNode }}
- {{ .Values.kamino.targetNode }}
{{- else if eq .Values.kamino.targetVMSS "ALL" }}
- --all
{{- else }}
- --pool={{ .Values.kamino.targetVMSS }}
{{- end }}
{{- if .Values.kamino.targetVMSS }}
{{- with $auto.lastPatchAnnotation }}
- --patch-annotation={{ . }}
{{- end }}
{{- if .Values.ortet.fresh }}
- --fresh
{{- if .Values.ortet.patch }}
- --patch
{{- end }}
{{- $prepare := .Values.ortet.prepare | default dict }}
{{- if $prepare.image }}
- --prepare={{ $prepare.image }}
{{- range $prepare.command }}
- {{ printf "--prepare-command=%s" . | quote }}
{{- end }}
{{- end }}
{{- if or .Values.ortet.patch $prepare.image }}
- --prepare-timeout={{ $prepare.timeout | default "20m" }}
{{- end }}
{{- else }}
{{- with $auto.pendingRebootAnnotation }}
- --reboot-annotation={{ . }}
{{- end }}
{{- $ready := dig "minimumReadyTime" "1h" $auto }}
- --min-ready={{ if kindIs "string" $ready }}{{ $ready }}{{ else }}{{ int64 $ready }}{{ end }}
- --min-candidates={{ dig "minimumCandidates" 1 $auto }}
{{- end }}
- --max-image-age={{ dig "maximumImageAge" 0 $auto }}
{{- if not .Values.ortet.fresh }}
{{- range $ours.ignoreNodes }}
- --ignore-node={{ . }}
{{- end }}
{{- range $ours.ignoreAnnotations }}
- --ignore-annotation={{ . }}
{{- end }}
{{- range $ours.skipRules }}
- --skip-rule={{ . }}
{{- end }}
{{- end }}
- --max-parallel={{ dig "maxParallel" 4 $ours }}
{{- range $ours.resourceGroups }}
- --resource-group={{ . }}
{{- end }}
{{- end }}
{{- if .Values.ortet.publishOnly }}
- --publish-only
{{- else }}
- --history={{ .Values.kamino.imageHistory }}
{{- end }}
- --grace-period={{ .Values.kamino.drain.gracePeriod }}s
{{- if .Values.kamino.drain.force }}
- --force
{{- end }}
{{- if not .Values.ortet.publishOnly }}
- --grow={{ .Values.kamino.newUpdatedNodes | default 0 }}
- --bootstrap={{ .Values.ortet.bootstrap }}
{{- end }}
{{- if .Values.ortet.acceptPoolCredentials }}
- --accept-pool-credentials
{{- end }}
{{- range .Values.ortet.acceptSecrets }}
- --accept-secret={{ . }}
{{- end }}
{{- if .Values.ortet.removeSecrets }}
- --remove-secrets
{{- end }}
{{- if .Values.ortet.scanImages }}
- --scan-images
{{- end }}
{{- with .Values.ortet.tune }}
- --tune={{ join "," . }}
{{- end }}
{{- if not .Values.ortet.publishOnly }}
- --extensions={{ .Values.ortet.extensions }}
{{- range .Values.ortet.keepExtensions }}
- --keep-extension={{ . }}
{{- end }}
{{- end }}
- --replicas={{ .Values.ortet.replicas }}
{{- if .Values.ortet.again }}
- --again
{{- end }}
{{- if .Values.ortet.online }}
- --online
{{- end }}
{{- if .Values.ortet.deallocate }}
- --deallocate
{{- end }}
{{- if or .Values.ortet.dryRun $auto.dryRun }}
- --dry-run
{{- end }}
{{- with .Values.ortet.workbench }}
- --workbench={{ . }}
{{- end }}
{{- if .Values.ortet.otherPools }}
- --other-pools
{{- end }}
{{- if ne (toString .Values.ortet.canary) "<nil>" }}
- --canary={{ .Values.ortet.canary }}
{{- end }}
{{- if include "ortet.testNamespace" . }}
- --canary-test=/etc/ortet/canary-test/job.yaml
{{- end }}
{{- with .Values.ortet.watch }}
- --watch={{ . }}
{{- end }}
{{- range .Values.ortet.restoreLearned }}
- --restore-learned={{ . }}
{{- end }}
- --image={{ include "ortet.image" . }}
{{- with .Values.kamino.container.pullSecret }}
- --image-pull-secret={{ . }}
{{- end }}
{{- else -}}
- status
{{- end }}
- --azure-config=/etc/kubernetes/azure.json
- --namespace={{ .Values.ortet.namespace }}
- --log-level={{ .Values.kamino.logLevel }}
{{- end -}}

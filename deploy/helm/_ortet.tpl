{{- /*
For charts that render Cluster API objects: copy this file into your templates/
and put

      vmExtensions:
        {{- include "ortet.vmExtensions" . | nindent 8 }}

into an AzureMachineTemplate or AzureMachinePool. Values:

  ortet:
    publisher: ""     # yours, of the published extension type; empty: CustomScript
    type: Ortet.Node.Linux
    version: "1.0"
    deadline: 20m
    settle: 10s       # how long the kubelet has to have been healthy
    grace: 2m         # how long it may take to become so, and the node to join
    units: ""         # names with commas between them
*/ -}}
{{- define "ortet.vmExtensions" -}}
{{- $o := .Values.ortet | default dict -}}
{{- if $o.publisher -}}
- name: {{ $o.type | default "Ortet.Node.Linux" | quote }}
  publisher: {{ $o.publisher | quote }}
  version: {{ $o.version | default "1.0" | quote }}
  settings:
    deadline: {{ $o.deadline | default "20m" | quote }}
    {{- with $o.settle }}
    settle: {{ . | quote }}
    {{- end }}
    {{- with $o.grace }}
    grace: {{ . | quote }}
    {{- end }}
    {{- with $o.units }}
    units: {{ . | quote }}
    {{- end }}
{{- else -}}
- name: CustomScript
  publisher: Microsoft.Azure.Extensions
  version: "2.1"
  settings:
    commandToExecute: >-
      ortet-node wait --deadline {{ $o.deadline | default "20m" }}{{ with $o.settle }} --settle {{ . }}{{ end }}{{ with $o.grace }} --grace {{ . }}{{ end }}{{ with $o.units }} --unit {{ . | replace " " "" }}{{ end }} >/run/ortet-wait.txt 2>&1; code=$?;
      head -c 3800 /run/ortet-wait.txt; exit $code
{{- end -}}
{{- end -}}

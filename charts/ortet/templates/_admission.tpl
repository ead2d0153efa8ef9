{{- define "ortet.admission.name" -}}
{{- printf "%s-admission" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Cluster-wide names carry the release's, so that two releases do not collide. */}}
{{- define "ortet.admission.clusterName" -}}
{{- printf "ortet-admission:%s:%s" .Release.Namespace .Release.Name -}}
{{- end -}}

{{/* The namespace of the server's keys. */}}
{{- define "ortet.admission.keys" -}}
{{- printf "%s-admission" .Release.Namespace -}}
{{- end -}}

{{/* Who may read the key that authenticates its records, as the server and administrators
may, gains nothing by what the policies keep others from. */}}
{{- define "ortet.admission.mayReadKeys" -}}
authorizer.group('').resource('secrets').namespace('{{ include "ortet.admission.keys" . }}').name('ortet-admission-records').check('get').allowed()
{{- end -}}

{{/* Whether p is a callback port, in CEL, as "p == 340 || 9440 <= p && p <= 9450". */}}
{{- define "ortet.admission.isCallbackPort" -}}
{{- $any := list -}}
{{- range (splitList "," (toString .Values.admission.callbackPort)) -}}
{{- $range := splitList "-" . -}}
{{- $any = append $any (printf "%s <= p && p <= %s" (first $range) (last $range)) -}}
{{- end -}}
{{- join " || " $any -}}
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

{{/* All that is wrong with the values, at once, with what to do. */}}
{{- define "ortet.admission.check" -}}
{{- $v := .Values.admission -}}
{{- $scaleSet := "(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft[.]Compute/virtualMachineScaleSets/[^/]+$" -}}
{{- $wrong := list -}}
{{- if not $v.pools -}}
{{- $wrong = append $wrong "set admission.pools: ARM ids of the scale sets whose instances are admitted; az vmss show --resource-group GROUP --name NAME --query id" -}}
{{- end -}}
{{- range (concat $v.pools $v.keepCapacity) -}}
{{- if not (regexMatch $scaleSet .) -}}
{{- $wrong = append $wrong (printf "%q under admission.pools or keepCapacity is no scale set's ARM id: want /subscriptions/…/resourceGroups/…/providers/Microsoft.Compute/virtualMachineScaleSets/NAME; az vmss show --resource-group GROUP --name NAME --query id" .) -}}
{{- end -}}
{{- end -}}
{{- if not $v.names -}}
{{- $wrong = append $wrong (printf "set admission.names: the names or addresses in the nodes' servers, here %s" (ternary "those of the control plane's nodes, or of the load balancer before them" "the Service's address: a free one of the subnet, as admission.service.loadBalancerIP too" $v.onControlPlane)) -}}
{{- end -}}
{{- range $v.names -}}
{{- if not (regexMatch "^[0-9A-Za-z]([0-9A-Za-z.-]*[0-9A-Za-z])?$|^[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*$" .) -}}
{{- $wrong = append $wrong (printf "%q under admission.names: want a DNS name or an address alone, without https:// and without the port" .) -}}
{{- end -}}
{{- end -}}
{{- range $name, $address := (dict "server" $v.server "supervisor" $v.supervisor) -}}
{{- if and $address (not (regexMatch "^https://[^/]+$" $address)) -}}
{{- $wrong = append $wrong (printf "admission.%s is %q: want https://HOST:PORT, as nodes reach it" $name $address) -}}
{{- end -}}
{{- end -}}
{{- if $v.onControlPlane -}}
{{- if or $v.service.loadBalancerIP $v.service.nodePort -}}
{{- $wrong = append $wrong "admission.service is not made while admission.onControlPlane is true: nodes ask the control plane's nodes at their own addresses. Set admission.onControlPlane=false to have the Service, or leave service as it is" -}}
{{- end -}}
{{- if $v.networkPolicy.enabled -}}
{{- $wrong = append $wrong (printf "admission.networkPolicy does nothing for pods in a node's network: narrow port %v in the subnet's security group, or set admission.onControlPlane=false" $v.ports.machines) -}}
{{- end -}}
{{- end -}}
{{- range $name, $duration := (dict "tokenTTL" $v.tokenTTL "reapInterval" $v.reapInterval) -}}
{{- if not (regexMatch "^([0-9]+d([0-9]+h)?([0-9]+m)?([0-9]+s)?|([0-9]+([.][0-9]+)?(h|m|s|ms))+)$" $duration) -}}
{{- $wrong = append $wrong (printf "admission.%s is %q: want a duration such as 10m" $name $duration) -}}
{{- end -}}
{{- end -}}
{{- $ports := list (toString $v.ports.machines) (toString $v.ports.metrics) (toString $v.ports.health) -}}
{{- if ne (len (uniq $ports)) 3 -}}
{{- $wrong = append $wrong (printf "admission.ports are %s: want three different ones" (join ", " $ports)) -}}
{{- end -}}
{{- range $name, $pem := (dict "intermediates" $v.intermediates "roots" $v.roots) -}}
{{- if and $pem (not (contains "-----BEGIN CERTIFICATE-----" $pem)) -}}
{{- $wrong = append $wrong (printf "admission.%s holds no PEM: give the text, by --set-file admission.%s=FILE" $name $name) -}}
{{- end -}}
{{- end -}}
{{- if gt (len (include "ortet.admission.keys" .)) 63 -}}
{{- $wrong = append $wrong (printf "the namespace %s: want a name of 53 characters at most, since the server's keys lie in %s" .Release.Namespace (include "ortet.admission.keys" .)) -}}
{{- end -}}
{{- if $wrong -}}
{{- fail (printf "\n  - %s" (join "\n  - " $wrong)) -}}
{{- end -}}
{{- end -}}

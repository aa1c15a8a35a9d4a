{{/* Name of everything that belongs to the operator itself. */}}
{{- define "fray.name" -}}
{{ .Release.Name | trunc 54 | trimSuffix "-" }}-operator
{{- end }}

{{/* Name of the Service of metrics. A Service's is shorter than others, has no dots and begins with a letter. */}}
{{- define "fray.metricsService" -}}
{{- $release := regexReplaceAll "^([0-9])" .Release.Name "fray-${1}" | replace "." "-" -}}
{{ $release | trunc 46 | trimSuffix "-" }}-operator-metrics
{{- end }}

{{- define "fray.selectorLabels" -}}
app.kubernetes.io/name: fray-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "fray.labels" -}}
{{ include "fray.selectorLabels" . }}
app.kubernetes.io/part-of: fray
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "fray.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "fray.name" .) }}
{{- end }}

{{/* Reference of an image. Takes a list: the root, and one of the image values. */}}
{{- define "fray.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* The limits of chips as the operator reads them: a=1,b=2. Takes the value nodePools. */}}
{{- define "fray.maxChips" -}}
{{- $limits := list -}}
{{- range $accelerator, $chips := .maxChips | default dict -}}
{{- $limits = append $limits (printf "%s=%d" $accelerator (int64 $chips)) -}}
{{- end -}}
{{ join "," $limits }}
{{- end }}

{{/* "true" when the chart installs the CRDs. */}}
{{- define "fray.installsCrds" -}}
{{- if kindIs "invalid" .Values.crds.install -}}
{{ eq .Values.scope "cluster" }}
{{- else -}}
{{ .Values.crds.install }}
{{- end -}}
{{- end }}

{{/* JSON object: {"names": [namespaces that are served, none for all]}. */}}
{{- define "fray.servedNamespaces" -}}
{{- if eq .Values.scope "cluster" -}}
{"names": []}
{{- else -}}
{{ dict "names" (.Values.namespaces | default (list .Release.Namespace)) | toJson }}
{{- end -}}
{{- end }}

{{/* JSON object: {"names": [namespaces where job pods get their account]}. */}}
{{- define "fray.jobNamespaces" -}}
{{- $default := (include "fray.servedNamespaces" . | fromJson).names | default (list "default") -}}
{{ dict "names" (.Values.jobs.namespaces | default $default | uniq) | toJson }}
{{- end }}

{{/* What the operator does in each namespace that it serves. */}}
{{- define "fray.operatorRules" -}}
- apiGroups: [fray.dev]
  resources: [frayjobs, frayactors]
  verbs: [get, list, watch]
# Finished actors are deleted when their time has come.
- apiGroups: [fray.dev]
  resources: [frayactors]
  verbs: [delete]
# Jobs that another one launched are stopped when it fails, and finished ones deleted when their time has come.
- apiGroups: [fray.dev]
  resources: [frayjobs]
  verbs: [update, delete]
- apiGroups: [fray.dev]
  resources: [frayjobs/status, frayactors/status]
  verbs: [update]
# Where owner references are guarded (OwnerReferencesPermissionEnforcement), a JobSet that its FrayJob owns
# can't be created without this.
- apiGroups: [fray.dev]
  resources: [frayjobs/finalizers, frayactors/finalizers]
  verbs: [update]
# The pods of actors.
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, update, delete]
# What the members of actors report of themselves.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, watch]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get, list, watch, create, update, delete]
# Jobs tell whose pods are, and keep the evidence of an eviction whose pods are gone; those of workers are made,
# sized and ended.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, update, delete]
# The ports of a pool are open to the pods of its job alone.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, get]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
# The keys by which the pods of pools know each other. A right to create can't be limited to a name.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [fray-auth]
  verbs: [get, update]
# To say why a job waits in its queue, and why Kueue sent it back there. Kueue need not be installed.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [list]
# To learn by which topology Kueue places the jobs of a queue; the rest of it belongs to no namespace.
- apiGroups: [kueue.x-k8s.io]
  resources: [localqueues]
  verbs: [get]
{{- end }}

{{/* The same for every release, so that two of them in one namespace can't both lead. */}}
{{- define "fray.leaseName" -}}
fray-operator
{{- end }}

{{/* Rights on one Lease. A right to create can't be limited to a name. */}}
{{- define "fray.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ . }}]
  verbs: [get, update]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
{{- end }}

{{/* Labels of what is made for jobs: not the operator's name, so that no selector takes one for the other. */}}
{{- define "fray.jobLabels" -}}
app.kubernetes.io/name: fray-job
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: fray
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Everything a user may do with Fray's resources: all but their status, which is the operator's. */}}
{{- define "fray.editRules" -}}
- apiGroups: [fray.dev]
  resources: [frayjobs, frayactors]
  verbs: [get, list, watch, create, update, patch, delete, deletecollection]
- apiGroups: [fray.dev]
  resources: [frayjobs/scale, frayactors/scale]
  verbs: [get, update, patch]
{{- end }}

{{/* Wishes, never demands: on a small cluster the operator runs where there is room. */}}
{{- define "fray.defaultAffinity" -}}
nodeAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      preference:
        matchExpressions:
          - key: cloud.google.com/gke-tpu-accelerator
            operator: DoesNotExist
          - key: cloud.google.com/gke-accelerator
            operator: DoesNotExist
    - weight: 50
      preference:
        matchExpressions:
          - key: cloud.google.com/gke-spot
            operator: DoesNotExist
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "fray.selectorLabels" . | nindent 12 }}
    - weight: 50
      podAffinityTerm:
        topologyKey: topology.kubernetes.io/zone
        labelSelector:
          matchLabels:
            {{- include "fray.selectorLabels" . | nindent 12 }}
{{- end }}

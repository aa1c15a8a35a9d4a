{{/* Name of everything that belongs to the operator itself. */}}
{{- define "fray.name" -}}
{{ .Release.Name | trunc 54 | trimSuffix "-" }}-operator
{{- end }}

{{- define "fray.selectorLabels" -}}
app.kubernetes.io/name: fray-operator
app.kubernetes.io/instance: {{ .Release.Name }}
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

{{/* "true" when the chart installs the CRDs. */}}
{{- define "fray.installsCrds" -}}
{{- if kindIs "invalid" .Values.crds.install -}}
{{ eq .Values.scope "cluster" }}
{{- else -}}
{{ .Values.crds.install }}
{{- end -}}
{{- end }}

{{/* JSON object: {"names": [namespaces where job pods get their account]}. */}}
{{- define "fray.jobNamespaces" -}}
{{- $default := eq .Values.scope "cluster" | ternary "default" .Release.Namespace -}}
{{ dict "names" (.Values.jobs.namespaces | default (list $default) | uniq) | toJson }}
{{- end }}

{{/* What the operator does in each namespace that it serves. */}}
{{- define "fray.operatorRules" -}}
- apiGroups: [fray.dev]
  resources: [frayjobs]
  verbs: [get, list, watch]
- apiGroups: [fray.dev]
  resources: [frayjobs/status]
  verbs: [update]
# Where owner references are guarded (OwnerReferencesPermissionEnforcement), a JobSet that its FrayJob owns
# can't be created without this.
- apiGroups: [fray.dev]
  resources: [frayjobs/finalizers]
  verbs: [update]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
{{- end }}

{{/* Refuse what the schema can't see, with what to do instead. */}}
{{- define "fray.validate" -}}
{{- if and (eq .Values.scope "namespace") (without .Values.jobs.namespaces .Release.Namespace) }}
{{- fail (printf "jobs.namespaces: with scope=namespace jobs run in the release's namespace %q and nowhere else; leave it empty, or install with scope=cluster" .Release.Namespace) }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.name: name the existing account to use, since serviceAccount.create is false" }}
{{- end }}
{{- if gt (float64 .Values.backoff.seconds) (float64 .Values.backoff.capSeconds) }}
{{- fail (printf "backoff.capSeconds: must be at least backoff.seconds (%v), it is %v" .Values.backoff.seconds .Values.backoff.capSeconds) }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.metricsService.enabled) }}
{{- fail "serviceMonitor.enabled: needs metricsService.enabled=true, since Prometheus finds the operator through that Service" }}
{{- end }}
{{- $ours := dict "FRAY_NAMESPACES" "scope" "FRAY_READ_NODES" "scope" "FRAY_RUNTIME_IMAGE" "runtimeImage" "FRAY_SERVICE_ACCOUNT" "jobs.serviceAccount.name" "FRAY_METADATA_SERVER" "metadataServer" "FRAY_LEASE_SECONDS" "leaseSeconds" "FRAY_BACKOFF_SECONDS" "backoff.seconds" "FRAY_BACKOFF_CAP_SECONDS" "backoff.capSeconds" "FRAY_HTTP_PORT" "httpPort" "FRAY_LOG_LEVEL" "logLevel" }}
{{- range .Values.extraEnv }}
{{- with get $ours .name }}
{{- fail (printf "extraEnv: set the value %s instead, the chart makes a variable of it" .) }}
{{- end }}
{{- if has .name (list "FRAY_LEASE_NAME" "FRAY_LEASE_NAMESPACE" "FRAY_POD_NAME") }}
{{- fail (printf "extraEnv: %s is the chart's own: the operator's rights are made for it" .name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The same for every release, so that two of them in one namespace can't both lead. */}}
{{- define "fray.leaseName" -}}
fray-operator
{{- end }}

{{/* Labels of what is made for jobs: not the operator's name, so that no selector takes one for the other. */}}
{{- define "fray.jobLabels" -}}
app.kubernetes.io/name: fray-job
app.kubernetes.io/instance: {{ .Release.Name }}
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

{{/* Wishes, never demands: on a small cluster the operator runs wherever there is room. */}}
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
{{- end }}

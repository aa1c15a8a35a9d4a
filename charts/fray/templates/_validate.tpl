{{/* Refuse what the schema can't see: values that don't go together. Each message names the value. */}}
{{- define "fray.validate" -}}
{{- include "fray.validateImages" . }}
{{- include "fray.validateJobs" . }}
{{- include "fray.validateResources" . }}
{{- include "fray.validateEnv" . }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "serviceAccount.name: name the existing account to use, since serviceAccount.create is false" }}
{{- end }}
{{- if gt (float64 .Values.backoff.seconds) (float64 .Values.backoff.capSeconds) }}
{{- fail (printf "backoff.capSeconds: must be at least backoff.seconds (%v), it is %v" .Values.backoff.seconds .Values.backoff.capSeconds) }}
{{- end }}
{{- if and .Values.jobset.enabled (ne .Values.scope "cluster") }}
{{- fail "jobset.enabled: JobSet serves a whole cluster, and scope=namespace installs nothing outside its namespaces; install JobSet by its own chart" }}
{{- end }}
{{- if eq .Values.nodePools.provider "gke" }}
{{- if ne .Values.scope "cluster" }}
{{- fail "nodePools.provider: gke needs scope=cluster, since with scope=namespace the operator can't see what runs on node pools" }}
{{- end }}
{{- if not .Values.nodePools.cluster }}
{{- fail "nodePools.cluster: name the cluster, projects/PROJECT/locations/LOCATION/clusters/NAME" }}
{{- end }}
{{- if not .Values.nodePools.maxChips }}
{{- fail "nodePools.maxChips: allow some, such as tpu-v5p-slice: 64; of other types no pool is made" }}
{{- end }}
{{- end }}
{{- if and .Values.prometheusRule.enabled (not .Values.metricsService.enabled) }}
{{- fail "prometheusRule.enabled: needs metricsService.enabled=true, since the alerts select metrics by that Service" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.metricsService.enabled) }}
{{- fail "serviceMonitor.enabled: needs metricsService.enabled=true, since Prometheus finds the operator through that Service" }}
{{- end }}
{{- end }}

{{- define "fray.validateImages" -}}
{{- range $value, $image := dict "image" .Values.image "runtimeImage" .Values.runtimeImage }}
{{- if and $.Values.registry (contains ":" $image.repository) }}
{{- fail (printf "%s.repository: %s names a registry with a port, and the value registry (%s) is put in front of it; set one of them" $value $image.repository $.Values.registry) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "fray.validateJobs" -}}
{{- $served := (include "fray.servedNamespaces" . | fromJson).names }}
{{- if and .Values.namespaces (eq .Values.scope "cluster") }}
{{- fail "namespaces: with scope=cluster every namespace is served; leave it empty, or install with scope=namespace" }}
{{- end }}
{{- range .Values.jobs.namespaces }}
{{- if and $served (not (has . $served)) }}
{{- fail (printf "jobs.namespaces: %s isn't served; with scope=namespace jobs run in %s, which the value namespaces lists" . (join ", " $served)) }}
{{- end }}
{{- end }}
{{- /* The roles have the names of the accounts, more or less. */}}
{{- $own := list (include "fray.serviceAccount" .) (include "fray.name" .) (printf "%s-lease" (include "fray.name" .)) }}
{{- range (include "fray.jobNamespaces" . | fromJson).names }}
{{- $taken := eq . $.Release.Namespace | ternary $own (has . $served | ternary (list (include "fray.name" $)) list) }}
{{- if and (eq . "default") (eq $.Values.scope "cluster") }}
{{- $taken = concat $taken (list (printf "%s-claim" (include "fray.name" $)) (printf "%s-claim-view" (include "fray.name" $))) }}
{{- end }}
{{- if has $.Values.jobs.serviceAccount.name $taken }}
{{- fail (printf "jobs.serviceAccount.name: %s is the operator's own in namespace %s, where jobs run too; they would get its rights" $.Values.jobs.serviceAccount.name .) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "fray.validateResources" -}}
{{- $resources := .Values.resources | default dict }}
{{- $limits := $resources.limits | default dict }}
{{- range $name, $request := $resources.requests | default dict }}
{{- if hasKey $limits $name }}
{{- $limit := get $limits $name }}
{{- if gt (include "fray.amount" $request | float64) (include "fray.amount" $limit | float64) }}
{{- fail (printf "resources.limits.%s: must be at least resources.requests.%s (%v), it is %v" $name $name $request $limit) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The number that a quantity stands for, "512Mi" for instance; takes what the schema lets through. */}}
{{- define "fray.amount" -}}
{{- $text := toString . -}}
{{- $number := regexFind "^\\+?[0-9.]+([eE][-+]?[0-9]+)?" $text -}}
{{- $scales := dict "" 1.0 "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- mulf (float64 $number) (get $scales (trimPrefix $number $text)) -}}
{{- end }}

{{- define "fray.validateEnv" -}}
{{- $ours := dict "FRAY_NAMESPACES" "namespaces" "FRAY_READ_NODES" "scope" "FRAY_RUNTIME_IMAGE" "runtimeImage" "FRAY_INJECTOR_IMAGE" "image" "FRAY_SERVICE_ACCOUNT" "jobs.serviceAccount.name" "FRAY_METADATA_SERVER" "metadataServer" "FRAY_KUEUE_ELASTIC_JOBS" "kueue.elasticJobs" "FRAY_LEASE_SECONDS" "leaseSeconds" "FRAY_BACKOFF_SECONDS" "backoff.seconds" "FRAY_BACKOFF_CAP_SECONDS" "backoff.capSeconds" "FRAY_SETTLE_SECONDS" "settleSeconds" "FRAY_UNREACHABLE_SECONDS" "unreachableSeconds" "FRAY_AVOID_SECONDS" "avoidSeconds" "FRAY_NODE_POOLS" "nodePools.provider" "FRAY_GKE_CLUSTER" "nodePools.cluster" "FRAY_MAX_POOLS" "nodePools.maxPools" "FRAY_MAX_CHIPS" "nodePools.maxChips" "FRAY_POOL_IDLE_SECONDS" "nodePools.idleSeconds" "FRAY_POOL_ZONES" "nodePools.zones" "FRAY_POOL_SPOT" "nodePools.spot" "FRAY_POOL_SERVICE_ACCOUNT" "nodePools.serviceAccount" "FRAY_HTTP_PORT" "httpPort" "FRAY_LOG_LEVEL" "logLevel" }}
{{- $names := list }}
{{- range .Values.extraEnv }}
{{- with get $ours .name }}
{{- fail (printf "extraEnv: set the value %s instead, the chart makes a variable of it" .) }}
{{- end }}
{{- if has .name (list "FRAY_LEASE_NAME" "FRAY_LEASE_NAMESPACE" "FRAY_POD_NAME") }}
{{- fail (printf "extraEnv: %s is the chart's own: the operator's rights are made for it" .name) }}
{{- end }}
{{- if has .name $names }}
{{- fail (printf "extraEnv: %s is there twice" .name) }}
{{- end }}
{{- if and (hasKey . "value") (hasKey . "valueFrom") }}
{{- fail (printf "extraEnv: %s has both value and valueFrom; leave one" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- end }}

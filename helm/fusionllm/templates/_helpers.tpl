{{- define "fusionllm.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* RELEASE-fusionllm, or RELEASE alone where it says so already. With room for the longest suffix within 63 characters. */}}
{{- define "fusionllm.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 54 | trimSuffix "-" -}}
{{- else if contains (include "fusionllm.name" .) .Release.Name -}}
{{- .Release.Name | trunc 54 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "fusionllm.name" .) | trunc 54 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Never changed by an upgrade: a Deployment's selector cannot. */}}
{{- define "fusionllm.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fusionllm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "fusionllm.labels" -}}
app.kubernetes.io/name: {{ include "fusionllm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ ternary "operator" "member" (eq .Values.role "hub") }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: fusionllm
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "fusionllm.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "fusionllm.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The image of a program: list of the root and the program's name. */}}
{{- define "fusionllm.image" -}}
{{- $root := index . 0 -}}
{{- $image := $root.Values.image -}}
{{- $key := index . 1 | camelcase | untitle -}}
{{- $version := printf ":%s" ($image.tag | default $root.Chart.AppVersion) -}}
{{- with get $image.digests $key -}}
{{- $version = printf "@%s" . -}}
{{- end -}}
{{- get $image $key | default (printf "%s/%s%s" $image.registry (index . 1) $version) -}}
{{- end -}}

{{/* What the Pod security standard "restricted" asks for, and more. */}}
{{- define "fusionllm.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}
{{- define "fusionllm.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Namespaces whose jobs are worked on, as JSON; none: all. */}}
{{- define "fusionllm.jobNamespaces" -}}
{{- .Values.watchNamespaces | default .Values.rbac.jobNamespaces | toJson -}}
{{- end -}}

{{/* Fails unless it is said where jobs are, and that no place is Kubernetes' own or the operator's. */}}
{{- define "fusionllm.checkNamespaces" -}}
{{- $namespaces := include "fusionllm.jobNamespaces" . | fromJsonArray -}}
{{- if and (not $namespaces) (not .Values.rbac.allNamespaces) -}}
{{- fail "rbac.jobNamespaces: name the namespaces of jobs, where alone the operator may make Pods and read Secrets, as --set 'rbac.jobNamespaces={training}', or give it these rights everywhere by --set rbac.allNamespaces=true" -}}
{{- end -}}
{{- if and $namespaces .Values.rbac.allNamespaces -}}
{{- fail "rbac.allNamespaces: namespaces are named by rbac.jobNamespaces or watchNamespaces as well: leave out one of the two" -}}
{{- end -}}
{{- range $namespaces -}}
{{- if hasPrefix "kube-" . -}}
{{- fail (printf "rbac.jobNamespaces: %s is Kubernetes' own namespace, and jobs may have nothing there" .) -}}
{{- end -}}
{{- if eq . $.Release.Namespace -}}
{{- fail (printf "rbac.jobNamespaces: %s is the operator's own namespace, and jobs may have nothing there" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Values of which the release's role makes nothing, as a JSON list of their names. What they are by default says nothing, and what both roles may be
given by one file of values is for neither to refuse: NOTES.txt tells.
*/}}
{{- define "fusionllm.unusedValues" -}}
{{- $values := .Values -}}
{{- $unused := list -}}
{{- if eq $values.role "member" -}}
{{- $operator := $values.operator -}}
{{- range $name, $set := dict
      "scheduler.enabled" $values.scheduler.enabled
      "admission.executorLimits" $values.admission.executorLimits
      "networkPolicy.enabled" $values.networkPolicy.enabled
      "metrics.serviceMonitor.enabled" $values.metrics.serviceMonitor.enabled
      "operator.clusterProfiles.enabled" $operator.clusterProfiles.enabled
      "operator.kueue.enabled" $operator.kueue.enabled
      "operator.replicas" (gt (int $operator.replicas) 1)
      "operator.config" $operator.config
      "operator.hubAddress" $operator.hubAddress
      "operator.extraArgs" $operator.extraArgs
      "operator.extraEnv" $operator.extraEnv -}}
{{- if $set -}}
{{- $unused = append $unused $name -}}
{{- end -}}
{{- end -}}
{{- else if eq (toString $values.member.token) "false" -}}
{{- $unused = append $unused "member.token" -}}
{{- end -}}
{{- $unused | toJson -}}
{{- end -}}

{{/* How often Prometheus asks, and what it makes of the answer: of a monitor. */}}
{{- define "fusionllm.scrape" -}}
interval: {{ .interval }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- if .honorLabels }}
honorLabels: true
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
Gives .Values what came to values.yaml later than the rest, with the default that it has there: helm upgrade --reuse-values takes the values of
the release as it was, and none of the chart's own. Each file here with such values begins with it.
*/}}
{{- define "fusionllm.fillIn" -}}
{{- include "fusionllm.fillInMap" (list .Values (include "fusionllm.laterValues" . | fromYaml)) -}}
{{- end -}}
{{- define "fusionllm.fillInMap" -}}
{{- $into := index . 0 -}}
{{- range $key, $value := index . 1 -}}
{{- if not (hasKey $into $key) -}}
{{- $_ := set $into $key $value -}}
{{- else if kindIs "map" $value -}}
{{- include "fusionllm.fillInMap" (list (get $into $key) $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- define "fusionllm.laterValues" -}}
image: {digests: {}}
uninstall: {stopJobs: true, how: "", timeoutSeconds: 240}
operator:
  logFormat: json
  clientConnection: {qps: 500, burst: 1000}
  config: {}
  clusterProfiles: {enabled: false, namespaces: [], providers: [], configMap: ""}
  kueue: {enabled: false, namespace: kueue-system, serviceAccount: kueue-controller-manager}
  podDisruptionBudget: {enabled: true, minAvailable: "", maxUnavailable: 1}
  startupProbe: {periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 150}
scheduler: {enabled: false, port: 7002, logLevel: info}
metrics: {enabled: true, ipv6: false, prometheusRule: {enabled: false, namespace: "", disabled: [], runbookUrl: docs/reference/alerts.md}}
grafana: {dashboards: {enabled: false, label: grafana_dashboard, labelValue: "1", namespace: "", folder: ""}}
networkPolicy: {jobs: {enabled: false, namespaces: [], fromCIDRs: []}}
rbac: {allNamespaces: false}
admission: {fence: false, executorLimits: false, pods: {enabled: true, serviceAccounts: []}}
{{- end -}}

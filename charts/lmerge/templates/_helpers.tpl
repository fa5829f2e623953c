{{/* Names. */}}
{{- define "lmerge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "lmerge.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "lmerge.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "lmerge.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "lmerge.server" -}}{{ include "lmerge.fullname" . }}-server{{- end }}
{{- define "lmerge.headless" -}}{{ include "lmerge.fullname" . }}-servers{{- end }}
{{- define "lmerge.controller" -}}{{ include "lmerge.fullname" . }}-controller{{- end }}
{{- define "lmerge.tlsSecret" -}}
{{- if eq .Values.tls.mode "existing" }}{{ .Values.tls.existingSecret }}{{ else }}{{ include "lmerge.fullname" . }}-tls{{ end }}
{{- end }}
{{- define "lmerge.accessSecret" -}}
{{- .Values.tokens.existingSecret | default (printf "%s-access" (include "lmerge.fullname" .)) }}
{{- end }}
{{- define "lmerge.priorityClass" -}}
{{- if .Values.priorityClass.create }}{{ include "lmerge.fullname" . }}-{{ .Release.Namespace }}{{ else }}{{ .Values.servers.priorityClassName }}{{ end }}
{{- end }}

{{/* The domain of the servers' own names: POD.DOMAIN. */}}
{{- define "lmerge.domain" -}}
{{ include "lmerge.headless" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* host:port of every server, with commas: what clients take as --server. */}}
{{- define "lmerge.servers" -}}
{{- $all := list }}
{{- range $i := until (int .Values.servers.count) }}
{{- $all = append $all (printf "%s-%d.%s:7171" (include "lmerge.server" $) $i (include "lmerge.domain" $)) }}
{{- end }}
{{- join "," $all }}
{{- end }}

{{- define "lmerge.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
{{- end }}

{{- define "lmerge.selector" -}}
app.kubernetes.io/name: {{ include "lmerge.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "lmerge.labels" -}}
{{ include "lmerge.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* metadata of an object: {root, component, name}. */}}
{{- define "lmerge.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "lmerge.labels" . | nindent 2 }}
{{- $annotations := merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What the restricted profile of pod security asks for. */}}
{{- define "lmerge.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "lmerge.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "lmerge.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* How a client of the servers connects: environment, mounts and volumes, for a token of the chart's: {root, token}. */}}
{{- define "lmerge.clientEnv" -}}
- name: LMERGE_SERVERS
  value: {{ include "lmerge.servers" .root | quote }}
{{- if ne .root.Values.tls.mode "none" }}
- name: LMERGE_CA
  value: /etc/lmerge/tls/ca.crt
{{- end }}
{{- if .root.Values.tokens.enabled }}
- name: LMERGE_TOKEN_FILE
  value: /etc/lmerge/token/token
{{- end }}
{{- end }}
{{- define "lmerge.clientMounts" -}}
{{- if ne .root.Values.tls.mode "none" }}
- {name: ca, mountPath: /etc/lmerge/tls, readOnly: true}
{{- end }}
{{- if .root.Values.tokens.enabled }}
- {name: token, mountPath: /etc/lmerge/token, readOnly: true}
{{- end }}
{{- end }}
{{- define "lmerge.clientVolumes" -}}
{{- if ne .root.Values.tls.mode "none" }}
- name: ca
  secret:
    secretName: {{ include "lmerge.tlsSecret" .root }}
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- if .root.Values.tokens.enabled }}
- name: token
  secret:
    secretName: {{ include "lmerge.tokenSecret" . }}
    items: [{key: {{ include "lmerge.tokenKey" . }}, path: token}]
{{- end }}
{{- end }}
{{- define "lmerge.tokenSecret" -}}
{{- .root.Values.tokens.existingSecret | default (printf "%s-token-%s" (include "lmerge.fullname" .root) .token) }}
{{- end }}
{{- define "lmerge.tokenKey" -}}
{{- if .root.Values.tokens.existingSecret }}{{ .token }}.token{{ else }}token{{ end }}
{{- end }}

{{/* Values that a schema cannot compare with each other. */}}
{{- define "lmerge.check" -}}
{{- $v := .Values }}
{{- if and (eq $v.tls.mode "existing") (not $v.tls.existingSecret) }}
{{- fail "tls.mode is existing: tls.existingSecret must name a Secret with tls.crt, tls.key and ca.crt" }}
{{- end }}
{{- if and $v.tokens.enabled (eq $v.tls.mode "none") }}
{{- fail "tokens.enabled needs encryption, or tokens would travel in clear: set tls.mode, or tokens.enabled to false" }}
{{- end }}
{{- if gt (int (add $v.servers.drainSeconds 15)) (int $v.servers.terminationGracePeriodSeconds) }}
{{- fail (printf "servers.terminationGracePeriodSeconds (%d) must be at least drainSeconds + 15 (%d): a server needs 10 s to end its streams" (int $v.servers.terminationGracePeriodSeconds) (int (add $v.servers.drainSeconds 15))) }}
{{- end }}
{{- if and $v.servers.disruptionBudget.enabled (gt (int $v.servers.count) 1) (ge (int $v.servers.disruptionBudget.maxUnavailable) (int $v.servers.count)) }}
{{- fail "servers.disruptionBudget.maxUnavailable must be below servers.count: a drain of nodes could stop all servers" }}
{{- end }}
{{- if and $v.tokens.enabled (not $v.tokens.existingSecret) (not (index $v.tokens.clients "admin")) }}
{{- fail "tokens.clients.admin is needed: a server that ends drains by it" }}
{{- end }}
{{- if and $v.controller.enabled (not (.Files.Glob "crds/*.yaml")) }}
{{- fail "controller.enabled: this chart was packaged without its CRD" }}
{{- end }}
{{- end }}

{{/* A probe of a server: {tls, path}. */}}
{{- define "lmerge.probe" -}}
{{- if .tls }}
httpGet: {path: {{ .path }}, port: http, scheme: HTTPS}
{{- else }}
grpc: {port: 7171}
{{- end }}
{{- end }}

{{- /* Name of every object: that of the release, so that two releases stand side by side. */ -}}
{{- define "murho.name" -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "murho.selector" -}}
app.kubernetes.io/name: murho
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "murho.labels" -}}
{{ include "murho.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "murho.monitoringLabels" -}}
{{ include "murho.labels" . }}
{{- with .Values.monitoring.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Name of the Secret with the keys. */ -}}
{{- define "murho.keys" -}}
{{- if .Values.keys.lines -}}
{{ include "murho.name" . }}-keys
{{- else if .Values.keys.existingSecret -}}
{{ .Values.keys.existingSecret }}
{{- else -}}
{{ fail "keys.enabled needs keys.existingSecret or keys.lines; `murho key NAME` makes a line" }}
{{- end -}}
{{- end }}

{{- define "murho.claim" -}}
{{- if .Values.checkpoints.existingClaim -}}
{{ .Values.checkpoints.existingClaim }}
{{- else -}}
{{ include "murho.name" . }}-checkpoints
{{- end -}}
{{- end }}

{{- /* Not empty if the claim is a new one that a single node mounts. */ -}}
{{- define "murho.oneNode" -}}
{{- if not (or .Values.checkpoints.url .Values.checkpoints.existingClaim) -}}
{{- if not (has "ReadWriteMany" .Values.checkpoints.accessModes) -}}
yes
{{- end -}}
{{- end -}}
{{- end }}

{{- define "pdd-operator.selector" -}}
app.kubernetes.io/name: pdd-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "pdd-operator.labels" -}}
{{ include "pdd-operator.selector" . }}
app.kubernetes.io/part-of: pdd
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

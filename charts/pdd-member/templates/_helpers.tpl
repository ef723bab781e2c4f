{{- define "pdd-member.labels" -}}
app.kubernetes.io/name: pdd-member
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: pdd
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "pdd-member.subject" -}}
{kind: ServiceAccount, name: {{ .Values.subject.name | default "pdd-operator" }}, namespace: {{ .Values.subject.namespace | default .Release.Namespace }}}
{{- end }}

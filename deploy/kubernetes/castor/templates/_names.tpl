{{- /* Names and labels. Pods of the server alone have the component `server`. */ -}}
{{- define "castor.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "castor.fullname" -}}
{{- $name := include "castor.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "castor.selector" -}}
app.kubernetes.io/name: {{ include "castor.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}

{{- /* What every object carries; a component is added where it matters. */ -}}
{{- define "castor.labels" -}}
app.kubernetes.io/name: {{ include "castor.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "castor.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "castor.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "castor.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end }}

{{- /* HOST:PORT of the Service, as pods of the cluster reach it. */ -}}
{{- define "castor.address" -}}
{{- printf "%s.%s.svc:%v" (include "castor.fullname" .) .Release.Namespace .Values.service.port -}}
{{- end }}

{{- define "castor.headlessAddress" -}}
{{- printf "%s-headless.%s.svc:50051" (include "castor.fullname" .) .Release.Namespace -}}
{{- end }}

{{- define "castor.appProtocol" -}}
{{- default (ternary "https" "kubernetes.io/h2c" .Values.tls.enabled) .Values.service.appProtocol -}}
{{- end }}

{{- /* The server's flags, mounts and volumes. */ -}}
{{- define "castor.ownArgs" -}}
{{- $v := .Values -}}
{{- $any := $v.service.listenAddress -}}
- --listen={{ $any }}:50051
- --http-listen={{ if $v.http.enabled }}{{ $any }}:8080{{ else }}off{{ end }}
- --health-listen={{ $any }}:50052
- --metrics-listen={{ if $v.metrics.enabled }}{{ $any }}:9464{{ else }}off{{ end }}
- --device={{ ternary "cuda" "cpu" $v.gpu.enabled }}
- --max-deadline={{ int $v.maxDeadlineSeconds }}s
- --drain-delay={{ int $v.drain.delaySeconds }}s
- --drain-deadline={{ include "castor.drainDeadline" . }}s
- --max-connection-age={{ int $v.maxConnectionAgeSeconds }}s
- --cost-model={{ if $v.costModel.configMap }}/etc/castor/cost-model/{{ $v.costModel.key }}{{ else }}/var/lib/castor/cost-model.json{{ end }}
- --log-level={{ $v.log.level }}
- --log-format={{ $v.log.format }}
{{- if $v.tls.enabled }}
- --tls-certificate=/etc/castor/tls/tls.crt
- --tls-key=/etc/castor/tls/tls.key
- --tls-min-version={{ $v.tls.minVersion }}
{{- if $v.tls.clientAuth }}
- --tls-client-ca=/etc/castor/tls/ca.crt
{{- end }}
{{- end }}
{{- if $v.auth.enabled }}
- --auth-tokens=/etc/castor/auth/{{ $v.auth.key }}
{{- if $v.auth.allowPlaintext }}
- --insecure-tokens
{{- end }}
{{- end }}
{{- if $v.metrics.tls }}
- --metrics-tls
{{- end }}
{{- if $v.metrics.auth }}
- --metrics-auth
{{- end }}
{{- if $v.tracing.endpoint }}
- --trace-endpoint={{ $v.tracing.endpoint }}
- --trace-sample={{ $v.tracing.sample }}
{{- end }}
{{- if $v.loadReports }}
- --load-reports
{{- end }}
{{- if $v.sharedMemory.enabled }}
- --shared-memory
{{- end }}
{{- if or $v.models $v.modelRoot.claimName }}
- --model-dtype={{ $v.modelDtype }}
{{- include "castor.modelArgs" . }}
{{- end }}
{{- end }}

{{- define "castor.args" -}}
{{ include "castor.ownArgs" . }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Secrets are mounted whole: kubelet does not renew a subPath. */ -}}
{{- define "castor.mounts" -}}
{{- $v := .Values -}}
- {name: tmp, mountPath: /tmp}
- {name: state, mountPath: /var/lib/castor}
{{- if $v.costModel.configMap }}
- {name: cost-model, mountPath: /etc/castor/cost-model, readOnly: true}
{{- end }}
{{- if $v.tls.enabled }}
- {name: tls, mountPath: /etc/castor/tls, readOnly: true}
{{- end }}
{{- if $v.auth.enabled }}
- {name: auth, mountPath: /etc/castor/auth, readOnly: true}
{{- end }}
{{- if $v.gpu.enabled }}
- {name: cuda-cache, mountPath: /var/cache/cuda}
{{- end }}
{{- if $v.sharedMemory.enabled }}
- {name: shared-memory, mountPath: /dev/shm}
{{- end }}
{{- include "castor.modelMounts" . }}
{{- with $v.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "castor.volumes" -}}
{{- $v := .Values -}}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
- name: state  # outlives a container, not its pod
  emptyDir: {sizeLimit: 64Mi}
{{- if $v.costModel.configMap }}
- name: cost-model
  configMap: {name: {{ $v.costModel.configMap }}}
{{- end }}
{{- if $v.tls.enabled }}
- name: tls
  secret: {secretName: {{ $v.tls.secretName }}, defaultMode: 0440}
{{- end }}
{{- if $v.auth.enabled }}
- name: auth
  secret: {secretName: {{ $v.auth.secretName }}, defaultMode: 0440}
{{- end }}
{{- if $v.gpu.enabled }}
- name: cuda-cache
  emptyDir: {sizeLimit: {{ $v.gpu.cacheSize }}}
{{- end }}
{{- if $v.sharedMemory.enabled }}
- name: shared-memory
  emptyDir: {medium: Memory, sizeLimit: {{ $v.sharedMemory.sizeLimit }}}
{{- end }}
{{- include "castor.modelVolumes" . }}
{{- with $v.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Requests and limits with the GPU, or the claim on one. */ -}}
{{- define "castor.resources" -}}
{{- $resources := deepCopy .Values.resources -}}
{{- if .Values.gpu.enabled -}}
{{- if eq .Values.gpu.mode "limit" -}}
{{- $_ := set $resources "limits" (merge (dict .Values.gpu.resource 1) (default dict $resources.limits)) -}}
{{- else -}}
{{- $_ := set $resources "claims" (list (dict "name" "gpu")) -}}
{{- end -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{- define "castor.tolerations" -}}
{{- with .Values.tolerations }}
{{ toYaml . }}
{{- end }}
{{- if and .Values.gpu.enabled .Values.gpu.taint }}
- {key: {{ .Values.gpu.taint }}, operator: Exists, effect: NoSchedule}
{{- end }}
{{- end }}

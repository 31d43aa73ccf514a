{{- /* Values that the schema cannot refuse, because they contradict each other. */ -}}
{{- define "castor.validate" -}}
{{- $v := .Values -}}
{{- if and $v.tls.enabled (not $v.tls.secretName) }}{{ fail "tls.enabled needs tls.secretName, a Secret with tls.crt and tls.key" }}{{ end -}}
{{- if and $v.tls.clientAuth (not $v.tls.enabled) }}{{ fail "tls.clientAuth needs tls.enabled" }}{{ end -}}
{{- if and $v.auth.enabled (not $v.auth.secretName) }}{{ fail "auth.enabled needs auth.secretName, a Secret with the file of callers" }}{{ end -}}
{{- if and $v.auth.enabled (not $v.tls.enabled) (not $v.auth.allowPlaintext) }}{{ fail "auth.enabled needs tls.enabled: tokens over plaintext can be read on the way (auth.allowPlaintext, behind a mesh that encrypts)" }}{{ end -}}
{{- if and $v.metrics.tls (not $v.tls.enabled) }}{{ fail "metrics.tls needs tls.enabled" }}{{ end -}}
{{- if and $v.metrics.auth (not $v.auth.enabled) }}{{ fail "metrics.auth needs auth.enabled" }}{{ end -}}
{{- if and $v.metrics.auth $v.metrics.serviceMonitor.enabled (not $v.metrics.serviceMonitor.tokenSecret.name) }}{{ fail "metrics.auth needs metrics.serviceMonitor.tokenSecret.name, for Prometheus" }}{{ end -}}
{{- if and $v.metrics.serviceMonitor.enabled (not $v.metrics.enabled) }}{{ fail "metrics.serviceMonitor needs metrics.enabled" }}{{ end -}}
{{- if ne $v.autoscaling.mode "none" -}}
{{- if lt (int $v.autoscaling.maxReplicas) (int $v.autoscaling.minReplicas) }}{{ fail "autoscaling.maxReplicas is less than autoscaling.minReplicas" }}{{ end -}}
{{- if not $v.metrics.enabled }}{{ fail "autoscaling needs metrics.enabled" }}{{ end -}}
{{- end -}}
{{- if and (eq $v.autoscaling.mode "keda") (not $v.autoscaling.keda.prometheus) }}{{ fail "autoscaling.mode keda needs autoscaling.keda.prometheus, http://HOST:PORT" }}{{ end -}}
{{- if and $v.gateway.enabled (not $v.gateway.parentRefs) }}{{ fail "gateway.enabled needs gateway.parentRefs, the Gateways to attach to" }}{{ end -}}
{{- if and $v.gateway.backendTLS.hostname (not $v.gateway.backendTLS.caConfigMap) }}{{ fail "gateway.backendTLS.hostname needs gateway.backendTLS.caConfigMap, a ConfigMap with ca.crt" }}{{ end -}}
{{- $steps := include "castor.rollingUpdate" . | fromYaml -}}
{{- if and (eq (toString $steps.maxSurge | trimSuffix "%") "0") (eq (toString $steps.maxUnavailable | trimSuffix "%") "0") }}{{ fail "rollout.maxSurge and rollout.maxUnavailable cannot both be 0" }}{{ end -}}
{{- if lt (include "castor.drainDeadline" . | int) (int $v.maxDeadlineSeconds) }}{{ fail "drain.deadlineSeconds is less than maxDeadlineSeconds: a shutdown would cut calls off" }}{{ end -}}
{{- $own := include "castor.flags" (dict "args" (include "castor.ownArgs" .)) | fromJsonArray -}}
{{- range include "castor.flags" (dict "args" (toYaml $v.extraArgs)) | fromJsonArray -}}
{{- if has . $own }}{{ fail (printf "extraArgs: %s is set by the chart: see values.yaml" .) }}{{ end -}}
{{- end -}}
{{- $names := dict -}}
{{- $kinds := dict -}}
{{- range $v.models -}}
{{- if hasKey $names .name }}{{ fail (printf "models: two are named %s" .name) }}{{ end -}}
{{- $_ := set $names .name true -}}
{{- if and .sha256 .sha256From }}{{ fail (printf "models: %s has both sha256 and sha256From" .name) }}{{ end -}}
{{- $claim := include "castor.modelClaim" . -}}
{{- $kind := keys .source | first -}}
{{- if and $claim (ne (default $kind (get $kinds $claim)) $kind) }}{{ fail (printf "models: %s is fetched to a claim that is another's pvc, which is read-only" .name) }}{{ end -}}
{{- $_ := set $kinds $claim $kind -}}
{{- end -}}
{{- end }}

{{- /* The names of the flags in a YAML list of them, as a JSON array. */ -}}
{{- define "castor.flags" -}}
{{- $flags := list -}}
{{- range .args | fromYamlArray -}}{{- $flags = append $flags (splitList "=" . | first) -}}{{- end -}}
{{- toJson $flags -}}
{{- end }}

{{- /* What follows from other values: times, the rollout's steps, the number of replicas. */ -}}
{{- define "castor.drainDeadline" -}}
{{- if kindIs "invalid" .Values.drain.deadlineSeconds -}}
{{- int .Values.maxDeadlineSeconds -}}
{{- else -}}
{{- int .Values.drain.deadlineSeconds -}}
{{- end -}}
{{- end }}

{{- define "castor.gracePeriod" -}}
{{- add (int .Values.drain.delaySeconds) (include "castor.drainDeadline" . | int) (int .Values.drain.marginSeconds) -}}
{{- end }}

{{- /* Without a spare GPU the new pod cannot be scheduled before the old one has gone. */ -}}
{{- define "castor.rollingUpdate" -}}
{{- $oneFirst := and .Values.gpu.enabled (not .Values.gpu.spare) -}}
{{- $surge := ternary 0 1 $oneFirst -}}
{{- $unavailable := ternary 1 0 $oneFirst -}}
{{- if not (kindIs "invalid" .Values.rollout.maxSurge) }}{{ $surge = .Values.rollout.maxSurge }}{{ end -}}
{{- if not (kindIs "invalid" .Values.rollout.maxUnavailable) }}{{ $unavailable = .Values.rollout.maxUnavailable }}{{ end -}}
maxSurge: {{ $surge }}
maxUnavailable: {{ $unavailable }}
{{- end }}

{{- /*
With autoscaling the live number is kept: a Deployment whose `replicas` goes away drops to one pod
at once. Rendered without a cluster, `lookup` finds nothing, and the least number stands.
*/ -}}
{{- define "castor.replicas" -}}
{{- if eq .Values.autoscaling.mode "none" -}}
{{- int .Values.replicas -}}
{{- else -}}
{{- $least := int .Values.autoscaling.minReplicas -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace (include "castor.fullname" .) -}}
{{- $now := int (dig "spec" "replicas" $least ($live | default dict)) -}}
{{- min (max $now $least) (int .Values.autoscaling.maxReplicas) -}}
{{- end -}}
{{- end }}

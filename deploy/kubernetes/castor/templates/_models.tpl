{{- /*
Models: sources → volumes, mounts, init containers and flags. A claim that several models use is one
volume: some storage drivers cannot mount a claim twice in a pod.
*/ -}}

{{- /* The claim that a model's files are on, or are fetched to; may be empty. */ -}}
{{- define "castor.modelClaim" -}}
{{- dig "source" "pvc" "claimName" "" . -}}{{- dig "source" "fetch" "claimName" "" . -}}
{{- end }}

{{- /* The volume of one model. (dict "model" M "index" I "models" LIST) */ -}}
{{- define "castor.modelVolume" -}}
{{- $volume := printf "model-%d" .index -}}
{{- $claim := include "castor.modelClaim" .model -}}
{{- if $claim -}}
{{- $found := false -}}
{{- range $index, $other := .models -}}
{{- if and (not $found) (eq (include "castor.modelClaim" $other) $claim) -}}
{{- $found = true -}}{{- $volume = printf "model-%d" $index -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $volume -}}
{{- end }}

{{- /* Where one model's files lie in the containers. */ -}}
{{- define "castor.modelPath" -}}
{{- $path := "" -}}
{{- with .model.source.pvc }}{{ $path = default "" .path }}{{ end -}}
{{- with .model.source.image }}{{ $path = default "" .path }}{{ end -}}
{{- /* On a claim, the pods of two revisions keep their own files. */ -}}
{{- if .model.source.fetch }}{{ $path = printf "%s/%s" .model.name .model.source.fetch.revision }}{{ end -}}
{{- printf "/models/%s/%s" (include "castor.modelVolume" .) $path | trimSuffix "/" -}}
{{- end }}

{{- define "castor.modelArgs" -}}
{{- range $index, $model := .Values.models }}
- --model={{ $model.name }}={{ include "castor.modelPath" (dict "model" $model "index" $index "models" $.Values.models) }}
{{- end }}
{{- with .Values.modelRoot }}
{{- if .claimName }}
- --model-root={{ printf "/models/root/%s" .path | trimSuffix "/" }}
- --model-control={{ .control }}
{{- if .weightsBudget }}
- --weights-budget={{ .weightsBudget }}
{{- end }}
{{- if .idleUnloadSeconds }}
- --idle-unload={{ int .idleUnloadSeconds }}s
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "castor.modelMounts" -}}
{{- if .Values.modelRoot.claimName }}
- {name: model-root, mountPath: /models/root, readOnly: true}
{{- end }}
{{- range $index, $model := .Values.models }}
{{- $volume := include "castor.modelVolume" (dict "model" $model "index" $index "models" $.Values.models) }}
{{- if eq $volume (printf "model-%d" $index) }}
- {name: {{ $volume }}, mountPath: /models/{{ $volume }}, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "castor.modelVolumes" -}}
{{- with .Values.modelRoot.claimName }}
- name: model-root
  persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
{{- end }}
{{- range $index, $model := .Values.models }}
{{- $volume := include "castor.modelVolume" (dict "model" $model "index" $index "models" $.Values.models) }}
{{- if eq $volume (printf "model-%d" $index) }}
- name: {{ $volume }}
  {{- with $model.source.pvc }}
  persistentVolumeClaim: {claimName: {{ .claimName }}, readOnly: true}
  {{- end }}
  {{- with $model.source.image }}
  image: {reference: {{ .reference | quote }}, pullPolicy: {{ default "IfNotPresent" .pullPolicy }}}
  {{- end }}
  {{- with $model.source.copy }}
  emptyDir: {sizeLimit: {{ default "2Gi" .sizeLimit }}}
  {{- end }}
  {{- with $model.source.fetch }}
  {{- if .claimName }}
  persistentVolumeClaim: {claimName: {{ .claimName }}}
  {{- else }}
  emptyDir: {sizeLimit: {{ default "2Gi" .sizeLimit }}}
  {{- end }}
  {{- end }}
{{- end }}
{{- with $model.sha256From }}
- name: manifest-{{ $index }}
  configMap: {name: {{ .configMap }}, items: [{key: {{ default "SHA256SUMS" .key }}, path: SHA256SUMS}]}
{{- else }}
{{- if $model.sha256 }}
- name: manifest-{{ $index }}
  configMap: {name: {{ include "castor.fullname" $ }}-manifests, items: [{key: {{ $model.name }}, path: SHA256SUMS}]}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Init containers have the server's CPU and memory, which costs nothing: the larger of both counts. */ -}}
{{- define "castor.initResources" -}}
requests: {{ pick (default dict .Values.resources.requests) "cpu" "memory" "ephemeral-storage" | toJson }}
limits: {{ pick (default dict .Values.resources.limits) "cpu" "memory" "ephemeral-storage" | toJson }}
{{- end }}

{{- define "castor.modelInitContainers" -}}
{{- range $index, $model := .Values.models }}
{{- $place := dict "model" $model "index" $index "models" $.Values.models }}
{{- $volume := include "castor.modelVolume" $place }}
{{- with $model.source.copy }}
- name: copy-{{ $index }}
  image: {{ .image | quote }}
  imagePullPolicy: {{ default "IfNotPresent" .pullPolicy }}
  command: {{ toJson .command }}
  env: [{name: MODEL_DIR, value: {{ include "castor.modelPath" $place | quote }}}]
  securityContext: {{- toYaml $.Values.securityContext | nindent 4 }}
  resources: {{- include "castor.initResources" $ | nindent 4 }}
  volumeMounts: [{name: {{ $volume }}, mountPath: /models/{{ $volume }}}]
{{- end }}
{{- with $model.source.fetch }}
- name: fetch-{{ $index }}
  image: {{ include "castor.image" $ | quote }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  command: [/opt/castor/bin/castor]
  args: [fetch, {{ printf "hf:%s@%s" .repository .revision | quote }}, --to, {{ include "castor.modelPath" $place }}]
  env:
    - {name: HF_HUB_CACHE, value: /models/{{ $volume }}/hub}
    {{- with $.Values.modelFetch.endpoint }}
    - {name: HF_ENDPOINT, value: {{ . | quote }}}
    {{- end }}
    {{- with $.Values.modelFetch.tokenSecret }}
    {{- if .name }}
    - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}}
    {{- end }}
    {{- end }}
  securityContext: {{- toYaml $.Values.securityContext | nindent 4 }}
  resources: {{- include "castor.initResources" $ | nindent 4 }}
  volumeMounts: [{name: {{ $volume }}, mountPath: /models/{{ $volume }}}]
{{- end }}
{{- if or $model.sha256 $model.sha256From }}
- name: verify-{{ $index }}
  image: {{ $.Values.modelCheck.image | quote }}
  imagePullPolicy: {{ $.Values.modelCheck.pullPolicy }}
  command:
    - sh
    - -c
    - | {{- $.Files.Get "files/check-model.sh" | nindent 6 }}
    - check-model
  args: [{{ include "castor.modelPath" $place }}, /manifest/SHA256SUMS]
  securityContext: {{- toYaml $.Values.securityContext | nindent 4 }}
  resources: {{- include "castor.initResources" $ | nindent 4 }}
  volumeMounts:
    - {name: {{ $volume }}, mountPath: /models/{{ $volume }}, readOnly: true}
    - {name: manifest-{{ $index }}, mountPath: /manifest, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

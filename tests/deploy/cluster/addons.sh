# shellcheck shell=bash disable=SC2154,SC2034
# Metrics for autoscaling, started on the node after `up`. Sourced by cluster.sh.

# api_service GROUP VERSION NAME PORT: makes the API server forward an API group to a port of the node. (Endpoints, not
# an EndpointSlice: the aggregator of 1.33 looks for the former, and a controller mirrors it into the latter.)
api_service() {
  cat <<END
---
apiVersion: v1
kind: Service
metadata: {name: $3, namespace: kube-system}
spec: {ports: [{port: 443, targetPort: $4}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: $3, namespace: kube-system}
subsets: [{addresses: [{ip: $node_ip}], ports: [{port: $4}]}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: $2.$1}
spec:
  group: $1
  version: $2
  service: {name: $3, namespace: kube-system}
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
END
}

# Every pod port named http, metrics or http-metrics is a target, labelled with its namespace and pod.
targets() {
  # shellcheck disable=SC2016
  local template='[{{range .items}}{{$p := .}}{{if eq .status.phase "Running"}}{{range .spec.containers}}{{range .ports}}'
  template+='{{if or (eq .name "http") (eq .name "metrics") (eq .name "http-metrics")}}'
  # shellcheck disable=SC2016
  template+='{"targets":["{{$p.status.podIP}}:{{.containerPort}}"],'
  # shellcheck disable=SC2016
  template+='"labels":{"namespace":"{{$p.metadata.namespace}}","pod":"{{$p.metadata.name}}"}},'
  template+='{{end}}{{end}}{{end}}{{end}}{{end}}{"targets":[]}]'
  while :; do
    if kubectl get pods -A -o go-template="$template" >"$run/targets.new"; then mv "$run/targets.new" "$run/targets.json"; fi
    sleep 2
  done
}

metrics() {
  local k=$conf/admin.kubeconfig
  command -v prometheus >/dev/null || die "missing package: prometheus"
  [[ -x $bin/prometheus-adapter ]] || die "run build-metrics first"
  node_pid >/dev/null || die "not up"
  [[ ! -e $run/metrics ]] || { say "metrics were started before"; return; }
  touch "$run/metrics"
  # Debian's Prometheus is built without Kubernetes discovery: _targets writes the list of pods that it reads.
  cat >"$conf/prometheus.yaml" <<END
global: {scrape_interval: 2s}
scrape_configs:
- job_name: pods
  file_sd_configs: [{files: [$run/targets.json]}]
END
  cat >"$conf/adapter.yaml" <<'END'
rules:
- seriesQuery: '{namespace!="",pod!="",__name__!~"^(scrape|up).*"}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: '{namespace!="",pod!="",__name__!~"^(scrape|up).*"}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
END
  mkdir -p "$state/prometheus" "$state/tls"
  on_node targets bash "$self" -w "$work" _targets
  on_node prometheus prometheus --config.file "$conf/prometheus.yaml" --storage.tsdb.path "$state/prometheus" \
    --web.listen-address 127.0.0.1:9091
  on_node adapter prometheus-adapter --prometheus-url http://127.0.0.1:9091 --metrics-relist-interval 5s --metrics-max-age 30s \
    --config "${CLUSTER_ADAPTER_CONFIG:-$conf/adapter.yaml}" --secure-port 6444 --cert-dir "$state/tls" \
    --lister-kubeconfig "$k" --authentication-kubeconfig "$k" --authorization-kubeconfig "$k"
  {
    api_service custom.metrics.k8s.io v1beta1 custom-metrics 6444
    api_service external.metrics.k8s.io v1beta1 external-metrics 6444
  } | (node_exec kubectl apply -f - >/dev/null)
  (node_exec kubectl wait --for=condition=Available --timeout=90s \
    apiservice/v1beta1.custom.metrics.k8s.io apiservice/v1beta1.external.metrics.k8s.io) >&2
}

# KEDA's operator and metrics adapter; the adapter takes over the external metrics API. Prometheus of `metrics` is at
# http://127.0.0.1:9091 for its triggers (the operator runs on the node, not in a pod).
keda() {
  local env=(env KEDA_CLUSTER_OBJECT_NAMESPACE=keda POD_NAMESPACE=keda WATCH_NAMESPACE=) tls=$state/keda
  [[ -x $bin/keda-operator ]] || die "run build-keda first"
  node_pid >/dev/null || die "not up"
  [[ ! -e $run/keda ]] || { say "KEDA was started before"; return; }
  touch "$run/keda"
  mkdir -p "$tls"
  new_cert keda ca /CN=keda DNS:localhost,IP:127.0.0.1
  cp "$pki/ca.crt" "$tls/ca.crt"
  cp "$pki/keda.crt" "$tls/tls.crt"
  cp "$pki/keda.key" "$tls/tls.key"
  (node_exec kubectl create namespace keda >/dev/null)
  (node_exec kubectl apply --server-side -f "$bin/keda-crds" >/dev/null)
  for _ in {1..20}; do                                 # `kubectl wait` errs on a CRD that has no conditions yet
    if (node_exec kubectl wait --for=condition=Established --timeout=5s crd/scaledobjects.keda.sh >/dev/null 2>&1); then break; fi
    sleep 0.5
  done
  on_node keda-operator "${env[@]}" keda-operator --kubeconfig "$conf/admin.kubeconfig" --cert-dir "$tls" \
    --metrics-service-bind-address 127.0.0.1:9666 --metrics-bind-address 127.0.0.1:8090 --health-probe-bind-address 127.0.0.1:8091
  on_node keda-adapter "${env[@]}" keda-adapter --metrics-service-address localhost:9666 --cert-dir "$tls" --secure-port 6446 \
    --port 8092 --lister-kubeconfig "$conf/admin.kubeconfig" --authentication-kubeconfig "$conf/admin.kubeconfig" \
    --authorization-kubeconfig "$conf/admin.kubeconfig"
  api_service external.metrics.k8s.io v1beta1 external-metrics 6446 | (node_exec kubectl apply -f - 2>/dev/null >&2)
  (node_exec kubectl wait --for=condition=Available --timeout=90s apiservice/v1beta1.external.metrics.k8s.io) >&2
}

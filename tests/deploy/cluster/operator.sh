# shellcheck shell=bash disable=SC2154
# Prometheus as kube-prometheus-stack runs it, by its operator, and without the rest of that stack. Sourced by
# cluster.sh.

# What the stack's chart makes for a release called prometheus: it takes ServiceMonitors and rules of any namespace that
# have the release's label.
operator_manifests() {
  cat <<END
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: monitoring}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: prometheus}
rules:
- {apiGroups: [""], resources: [services, endpoints, pods, nodes], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: prometheus}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
---
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: prometheus, namespace: monitoring}
spec:
  image: $prometheus_image
  version: v3.5.0
  serviceAccountName: prometheus
  securityContext: {runAsNonRoot: true, runAsUser: 1000, runAsGroup: 2000, fsGroup: 2000}
  serviceMonitorNamespaceSelector: {}
  serviceMonitorSelector: {matchLabels: {release: prometheus}}
  ruleNamespaceSelector: {}
  ruleSelector: {matchLabels: {release: prometheus}}
  scrapeInterval: 30s
  evaluationInterval: 30s
END
}

operator() {
  [[ -x $bin/prometheus-operator ]] || die "run build-operator first"
  node_pid >/dev/null || die "not up"
  [[ ! -e $run/operator ]] || { say "the operator was started before"; return; }
  touch "$run/operator"
  (node_exec kubectl create namespace monitoring >/dev/null)
  (node_exec kubectl apply --server-side -f "$bin/operator-crds" >/dev/null)
  for _ in {1..20}; do                                 # `kubectl wait` errs on a CRD that has no conditions yet
    if (node_exec kubectl wait --for=condition=Established --timeout=5s crd/prometheuses.monitoring.coreos.com >/dev/null 2>&1); then break; fi
    sleep 0.5
  done
  on_node operator prometheus-operator --apiserver "https://$node_ip:6443" --ca-file "$pki/ca.crt" \
    --cert-file "$pki/admin.crt" --key-file "$pki/admin.key" --web.listen-address 127.0.0.1:8083 \
    --prometheus-config-reloader "$reloader_image"
  operator_manifests | (node_exec kubectl apply -f - >/dev/null)
  (node_exec kubectl -n monitoring wait --for=condition=Available --timeout=180s prometheus/prometheus) >&2
}

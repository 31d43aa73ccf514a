# shellcheck shell=bash disable=SC2154
# deploy/kubernetes/README.md as somebody new follows it, from `helm install` to the dashboards: its
# own commands, run from a desk of their own. What a registry and Grafana would do is done here.

guide=$root/deploy/kubernetes/README.md
desk=$work/guide
small=deploy/kubernetes/examples/small.yaml
rm -rf "$desk"
mkdir -p "$desk/dashboards" "$desk/pages"
ln -s "$root/deploy" "$desk/deploy"
cluster kubectl delete namespace castor --ignore-not-found --wait >/dev/null

# told TEXT: the guide's first command that contains it
told() {
  awk '/^```/ { inside = !inside; next } inside' "$guide" |
    sed -e ':more' -e '/\\$/{N;s/ *\\\n */ /;b more' -e '}' |
    grep -m 1 -F -- "$1" | sed 's/  *# .*//' || { echo "the guide does not say: $1" >&2; return 1; }
}
# follow TEXT [FLAG...]: runs that command, with flags after it
follow() {
  local command
  command=$(told "$1")
  shift
  (cd "$desk" && PATH=$root/build/client:$root/build/server:$PATH on_node bash -c "$command $*")
}
certificate_of_castor() {
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=test authority" \
    -keyout "$desk/ca.key" -out "$desk/ca.crt"
  openssl req -newkey rsa:2048 -nodes -subj /CN=castor -keyout "$desk/tls.key" \
    -addext "subjectAltName=DNS:castor.castor.svc,DNS:castor-headless.castor.svc" |
    openssl x509 -req -days 1 -CA "$desk/ca.crt" -CAkey "$desk/ca.key" -CAcreateserial \
      -copy_extensions copy -out "$desk/tls.crt"
}

# ---- start ---------------------------------------------------------------------------------------
on_node ctr -n k8s.io images tag --force localhost/castor:test \
  "$(told "docker build" | sed 's/.* -t \([^ ]*\).*/\1/')" >/dev/null
contains "without room a pod says so, as the guide does" "Insufficient cpu" \
  "$(follow "helm install" --timeout 5s >/dev/null 2>&1; cluster kubectl -n castor describe pods)"
on_node helm uninstall castor -n castor >/dev/null
check "helm install, on a small cluster" follow "helm install" -f "$small"
contains "helm test" "check        passed" "$(follow "helm test" 2>&1)"
follow "port-forward service/castor 50051" >"$logs/forward.log" 2>&1 &
for _ in {1..50}; do
  if grep -q Forwarding "$logs/forward.log"; then break; fi
  sleep 0.1
done
contains "an attend from outside, through port-forward" "check        passed" \
  "$(follow "castor attend" 2>&1)"
on_node pkill -f "port-forward service/castor" || true
contains "a client in the cluster" "vanilla: FLOAT32" "$(follow "run client" 2>&1)"

# ---- TLS and tokens ------------------------------------------------------------------------------
certificate_of_castor 2>/dev/null
check "a caller's token" follow "castor-server token search"
for secret in castor-tls castor-callers castor-test-token; do
  check "its Secret" follow "create secret generic $secret"
done
check "the upgrade to TLS and tokens" follow "--set tls.enabled=true" -f "$small"
contains "helm test over TLS" "check        passed" "$(follow "helm test" 2>&1)"
contains "castor info over TLS, with the token" "vanilla: FLOAT32" \
  "$(follow "castor info --server castor.castor.svc" 2>&1)"

# ---- a dashboard ---------------------------------------------------------------------------------
check "Prometheus, by its operator" cluster operator
check "the upgrade to monitoring" follow "examples/monitoring.yaml" -f "$small"
prometheus=http://prometheus-operated.monitoring.svc:9090
# asked QUERY: the labels of its series, a line each
asked() {
  on_node curl -sG --data-urlencode "query=$1" "$prometheus/api/v1/query" |
    python3 -c 'import json, sys
for one in json.load(sys.stdin)["data"]["result"]:
    print(*(f"{key}={value}" for key, value in sorted(one["metric"].items())))'
}
scraped() {
  local i
  for ((i = 0; i < 120; i++)); do
    if [ "$(asked 'castor_build_info * on (pod) group_left up == 1' | wc -l)" = 2 ]; then echo "after $i s"; return; fi
    sleep 1
  done
  return 1
}
check "Prometheus scrapes both pods by the ServiceMonitor" scraped
# The server has no model: all classes of the mixed workload but the texts.
sed '/^name = "texts"/,$d' "$root/tests/monitoring/workload.toml" | sed '$d' >"$desk/workload.toml"
on_node "$root/build/client/load/castor-load" run --workload "$desk/workload.toml" \
  --server castor-headless.castor.svc:50051 --no-metrics --quiet --duration 120s \
  >"$logs/guide-load.txt" 2>&1 || true  # deadlines are missed on purpose
same "alerts that fire" CastorWatchdog \
  "$(asked 'count by (alertname) (ALERTS{alertstate="firing"})' | sed 's/alertname=//' | paste -sd' ')"
# As Grafana's sidecar finds them.
cluster kubectl get configmaps -A -l grafana_dashboard=1 -o json | python3 -c 'import json, sys
for one in json.load(sys.stdin)["items"]:
    for name, text in one["data"].items():
        open(f"{sys.argv[1]}/{name}", "w").write(text)' "$desk/dashboards"
on_node python3 "$root/tests/monitoring/render.py" --prometheus "$prometheus" --minutes 4 --step 15 \
  --dashboards "$desk/dashboards" --out "$desk/pages" --unused >"$logs/drawn.txt" \
  2>"$logs/empty.txt" || true
same "queries of the dashboards" \
  "$(cat "$root"/deploy/monitoring/dashboards/*.json | grep -c '"legendFormat":')" \
  "$(awk '{ n += $2 } END { print n }' "$logs/drawn.txt")"
same "panels that have values and show none" "" "$(cat "$logs/empty.txt")"
note "drawn in $desk/pages"

# ---- the end -------------------------------------------------------------------------------------
check "helm uninstall" follow "helm uninstall"
check "the namespace goes" follow "delete namespace castor"

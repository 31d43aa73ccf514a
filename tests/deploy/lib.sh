# shellcheck shell=bash disable=SC2034,SC2154
# What the checks share: verdicts, the cluster, a release of the chart, load. Sourced by run.sh.

passed=0 failed=0
pass() { printf 'PASS  %s\n' "$*"; passed=$((passed + 1)); }
fail() { printf 'FAIL  %s\n' "$*"; failed=$((failed + 1)); }
note() { printf '      %s\n' "$*"; }
# check WHAT CMD...: CMD's success decides; the last line of its output is shown
check() {
  local what=$1 out
  shift
  if out=$("$@" 2>&1); then pass "$what: $(tail -n 1 <<<"$out")"; else fail "$what: $(tail -n 8 <<<"$out")"; fi
}
# refused WHAT TEXT CMD...: CMD fails and says TEXT
refused() {
  local what=$1 text=$2 out
  shift 2
  if out=$("$@" 2>&1); then fail "$what: went through"; return; fi
  contains "$what" "$text" "$out"
}
same() { # WHAT WANTED GOT
  if [ "$2" = "$3" ]; then pass "$1: $3"; else fail "$1: wanted $2, got $3"; fi
}
contains() { # WHAT WANTED TEXT
  case $3 in *"$2"*) pass "$1: $2" ;; *) fail "$1: no '$2' in: $3" ;; esac
}
at_most() { # WHAT LIMIT GOT
  if [ "$3" -le "$2" ]; then pass "$1: $3 (at most $2)"; else fail "$1: $3, more than $2"; fi
}

ns=castor-test
fqdn=$ns.svc.cluster.local
cluster() { "$root/tests/deploy/cluster/cluster.sh" -w "$work" "$@"; }
on_node() { cluster exec "$@"; }
k() { cluster kubectl -n "$ns" "$@"; }

# release [HELM-FLAG...]: installs or upgrades to the chart with the test's values and these, and
# waits until all of it is ready, and until pods of the release before are told to stop: helm does
# not wait for these
release() {
  on_node helm upgrade --install castor "$root/deploy/kubernetes/castor" -n "$ns" --reset-values \
    -f "$root/tests/deploy/values.yaml" --wait --timeout "${release_timeout:-5m}" "$@" &&
    k rollout status deployment/castor --timeout 60s
}

# Names of the server's pods that are not on their way out, ready or not.
server_pods() {
  k get pods -l app.kubernetes.io/instance=castor,app.kubernetes.io/component=server -o \
    go-template='{{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}} {{.status.phase}}{{"\n"}}{{end}}{{end}}' |
    awk '$2 == "Running" || $2 == "Pending" { print $1 }'
}
ready_pods() {
  k get endpointslices -l kubernetes.io/service-name=castor-headless -o \
    go-template='{{range .items}}{{range .endpoints}}{{if .conditions.ready}}{{.targetRef.name}}{{"\n"}}{{end}}{{end}}{{end}}'
}
until_ready() { # COUNT SECONDS
  local i
  for ((i = 0; i < $2; i++)); do
    if [ "$(ready_pods | wc -l)" = "$1" ]; then echo "$1 after $i s"; return; fi
    sleep 1
  done
  k get pods >&2
  return 1
}
restarts() { k get pods -o go-template='{{range .items}}{{range .status.containerStatuses}}{{.restartCount}}{{"\n"}}{{end}}{{end}}' | awk '{ n += $1 } END { print n + 0 }'; }

# ---- load, from pods and from the node ----------------------------------------------------------

# load NAME SECONDS [CASTOR-LOAD-FLAG...]: castor-load in a pod, against the headless Service
load() {
  local name=$1 seconds=$2 flags=
  shift 2
  if [ $# -gt 0 ]; then flags=$(printf ', "%s"' "$@"); fi
  rm -f "$logs/$name.json"
  k delete pod "$name" --ignore-not-found --wait >/dev/null
  k apply -f - >/dev/null <<END
apiVersion: v1
kind: Pod
metadata: {name: $name, labels: {castor-client: "true", castor-load: "true"}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: load
      image: localhost/castor:test
      imagePullPolicy: Never
      command: [castor-load, run, --server, "castor-headless:50051", --quiet, --no-metrics,
        --duration, "${seconds}s", --attend, "${load_tokens:-64}", --rate, "${load_rate:-100}", --deadline, "${load_deadline:-5s}",
        --connections, "2", --json, /dev/stdout${flags}]
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {cpu: "1", memory: 1Gi}}
${load_container:-}
${load_volumes:-}
END
  k wait --for=condition=Ready "pod/$name" --timeout=60s >/dev/null
}

# outcome NAME KEY: of a load that has ended: planned, ok, refused, expired, cancelled, failed, ...
outcomes() {
  local out=$logs/$1.json
  [ -s "$out" ] || {
    k wait --for=jsonpath='{.status.containerStatuses[0].state.terminated.reason}' "pod/$1" --timeout=400s >/dev/null || true
    k logs "$1" >"$logs/$1.txt"
    python3 - "$logs/$1.txt" "$out" <<'END'
import json, re, sys
text = open(sys.argv[1]).read()
run, _ = json.JSONDecoder().raw_decode(text, re.search("^{", text, re.M).start())
total = run["summary"]["total"]
json.dump({"planned": total["planned"], **total["outcomes"], "p99_ms": total["intended"]["p99_ms"]}, open(sys.argv[2], "w"))
END
  }
  cat "$out"
}
outcome() { outcomes "$1" | python3 -c "import json,sys; print(json.load(sys.stdin)['$2'])"; }
lossless() { # WHAT NAME: all that was planned was answered OK
  local planned ok
  planned=$(outcome "$2" planned) ok=$(outcome "$2" ok)
  if [ "$planned" = "$ok" ] && [ "$ok" -gt 0 ]; then
    pass "$1: $ok of $planned calls OK, p99 $(outcome "$2" p99_ms) ms"
  else
    fail "$1: $(outcomes "$2")"
  fi
}

# stock NAME SECONDS [FLAG...]: the same by Python's gRPC with its defaults, on the node
stock() {
  local name=$1 seconds=$2
  shift 2
  on_node "$python" "$root/tests/deploy/stock_client.py" --target "dns:///castor-headless.$fqdn:50051" \
    --rate 20 --seconds "$seconds" "$@" >"$logs/$name.json" 2>"$logs/$name.err" &
  stock_pid=$!
}
stock_lossless() { # WHAT NAME PID
  wait "$3" || true
  if python3 -c "
import json, sys
r = json.load(open('$logs/$2.json'))
sys.exit(r['outcomes'] != {'OK': r['calls']})" 2>/dev/null; then
    pass "$1: $(cat "$logs/$2.json")"
  else
    fail "$1: $(cat "$logs/$2.json" "$logs/$2.err" 2>/dev/null | tail -c 600)"
  fi
}

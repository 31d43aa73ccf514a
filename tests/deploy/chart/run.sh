#!/usr/bin/env bash
# Tests the Helm chart, deploy/kserve and the values in deploy/kubernetes/examples without a cluster:
# lint, golden renders, refusals, invariants, and schemas of every supported Kubernetes.
#   run.sh [--update] [--render-only]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)

usage() {
  cat <<TEXT
Usage: run.sh [--update] [--render-only]
  --update       write the golden renders anew
  --render-only  without validating against schemas, which needs more tools
  -h, --help     this text
Environment: CASTOR_SERVER is a castor-server to compare flags and metrics with (default: that of
build/, if there is one).
TEXT
}

update=() render_only=()
for arg in "$@"; do
  case $arg in
    --update) update=(--update) ;;
    --render-only) render_only=(--render-only) ;;
    -h | --help) usage; exit 0 ;;
    *) printf 'run.sh: unknown option %s (see --help)\n' "$arg" >&2; exit 2 ;;
  esac
done

"$here/tools.sh" "${render_only[@]}"
tools=$("$here/tools.sh" --print-dir)
export HELM=$tools/bin/helm PYTHONDONTWRITEBYTECODE=1
python=$tools/venv/bin/python

server=${CASTOR_SERVER:-$root/build/server/castor-server}
with_server=()
if [ -x "$server" ]; then
  with_server=(--server "$server")
elif [ -n "${CI:-}" ] || [ -n "${CASTOR_SERVER:-}" ]; then
  printf 'run.sh: error: there is no %s to compare flags and metrics with\n' "$server" >&2
  exit 1
else
  echo "note: without $server flags and metrics are not compared with the server's"
fi

"$HELM" lint --strict "$root/deploy/kubernetes/castor" 2>&1 | grep -v 'found symbolic link'
for values in "$root"/deploy/kubernetes/examples/*.yaml; do
  "$HELM" lint --strict --quiet "$root/deploy/kubernetes/castor" -f "$values" >/dev/null 2>&1 ||
    { echo "helm lint fails with $values" >&2; exit 1; }
done
"$python" "$here/check_model_test.py"
"$python" "$here/golden_test.py" "${update[@]}"
"$python" "$here/refusals_test.py"
"$python" "$here/invariants_test.py" "${with_server[@]}"
if [ ${#render_only[@]} -eq 0 ]; then
  "$python" "$here/schemas_test.py" --kubeconform "$tools/bin/kubeconform" --schemas "$tools/schemas"
fi

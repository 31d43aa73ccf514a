# shellcheck shell=bash disable=SC2154
# What cannot start never takes the place of what serves.

check "two pods to begin with" until_ready 2 90
load broken 75
release_timeout=25s refused "a model that is not there does not become ready" "context deadline exceeded" \
  release --set 'extraArgs={--cost-model-budget=0s,--model=/models/none}'
contains "the log says why" "/models/none" "$(k logs "$(server_pods | tail -n 1)" --tail=3 2>&1; for p in $(server_pods); do k logs "$p" --tail=2 2>&1; k logs "$p" --previous --tail=2 2>&1 || true; done)"
same "the old pods go on" 2 "$(ready_pods | wc -l)"
release_timeout=25s refused "nor does a flag that is wrong" "context deadline exceeded" \
  release --set 'extraArgs={--max-batch-tokens=none}'
same "the old pods still go on" 2 "$(ready_pods | wc -l)"
check "helm rollback" on_node helm rollback castor -n "$ns" --wait --timeout 4m \
  "$(on_node helm history castor -n "$ns" -o json | python3 -c 'import json,sys; print([r["revision"] for r in json.load(sys.stdin) if r["status"] in ("deployed", "superseded")][-1])')"
lossless "castor-load meanwhile" broken

# shellcheck shell=bash disable=SC2154
# The server's own bounds come before the pod's memory limit.

check "two pods to begin with" until_ready 2 90
before=$(restarts)
# 500 MB a second of queries, keys and values, far more than one core computes; the pod has 512 MiB.
load_rate=40 load_tokens=2048 load_deadline=10s load heavy 30 --payloads 1
k wait --for=jsonpath='{.status.containerStatuses[0].state.terminated.reason}' pod/heavy --timeout=120s >/dev/null || true
note "$(outcomes heavy)"
at_most "calls that failed" 0 "$(outcome heavy failed)"
if [ "$(outcome heavy refused)" -gt 0 ] || [ "$(outcome heavy expired)" -gt 0 ]; then pass "there was more than it could take"; else fail "the load was too small: $(outcomes heavy)"; fi
same "restarts, of which an OOM kill would be one" "$before" "$(restarts)"

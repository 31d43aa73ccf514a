# shellcheck shell=bash disable=SC2154
# The server's own bounds come before the pod's memory limit. Large messages without end cost their
# own callers their connections, and nobody else anything.

check "two pods to begin with" until_ready 2 90
before=$(restarts)
# 500 MB a second of queries, keys and values, far more than one core computes; the pod has 512 MiB.
load_rate=40 load_tokens=2048 load_deadline=10s load heavy 30 --payloads 1
load_rate=20 load small 25 --priority high
k wait --for=jsonpath='{.status.containerStatuses[0].state.terminated.reason}' pod/heavy --timeout=120s >/dev/null || true
note "the heavy load: $(outcomes heavy)"
at_most "of it, answered" "$(($(outcome heavy planned) * 9 / 10))" "$(outcome heavy ok)"
note "small requests beside it: $(outcomes small)"
same "of those, failed" 0 "$(outcome small failed)"
at_most "of those, refused or late, of $(outcome small planned)" "$(($(outcome small planned) / 20))" \
  "$(($(outcome small planned) - $(outcome small ok)))"
same "restarts, of which an OOM kill would be one" "$before" "$(restarts)"

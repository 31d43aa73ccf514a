# shellcheck shell=bash disable=SC2154
# Pods that are deleted and nodes that are drained finish what they admitted.

check "two pods to begin with" until_ready 2 90
load deletion 60
stock deletion_stock 60
deletion_stock=$stock_pid
sleep 5
victim=$(ready_pods | sed -n 1p)
part_begin=$SECONDS
k delete pod "$victim" --wait >/dev/null
took=$((SECONDS - part_begin))
if [ "$took" -ge 10 ] && [ "$took" -le 40 ]; then pass "the pod took its drain delay: $took s"; else fail "the pod's end took $took s"; fi
check "its successor is ready" until_ready 2 90
lossless "castor-load while a pod was deleted" deletion
stock_lossless "Python's gRPC while a pod was deleted" deletion_stock "$deletion_stock"

load drain 60
sleep 5
refused "the budget lets a drain take one pod, and no more" "would violate the pod's disruption budget" \
  cluster kubectl drain node0 --pod-selector=app.kubernetes.io/name=castor --ignore-daemonsets \
  --delete-emptydir-data --timeout=30s
same "one goes on" 1 "$(ready_pods | wc -l)"
cluster kubectl uncordon node0 >/dev/null
check "two again" until_ready 2 90
lossless "castor-load during the drain" drain

# shellcheck shell=bash disable=SC2154,SC2086
# A rolling update loses no call, whoever calls: castor-load from a pod and Python's gRPC with its
# own 30 s between look-ups, both by the headless name, and both without retries.

load rollout 160
stock rollout_stock 160
rollout_stock=$stock_pid
old=$(ready_pods | sort | xargs)
part_begin=$SECONDS
check "helm upgrade" release --set podAnnotations.generation=two
note "the rollout took $((SECONDS - part_begin)) s"
new=$(ready_pods | sort | xargs)
if [ "$(printf '%s\n' $old $new | sort -u | wc -l)" = 4 ]; then pass "both pods are new"; else fail "old: $old; new: $new"; fi
lossless "castor-load during the rollout" rollout
stock_lossless "Python's gRPC during the rollout" rollout_stock "$rollout_stock"

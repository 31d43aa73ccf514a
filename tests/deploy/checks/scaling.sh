# shellcheck shell=bash disable=SC2154
# The autoscaler follows the server's own metrics, up and down again.

check "the chart with an HPA" release --set autoscaling.mode=hpa --set autoscaling.maxReplicas=3 \
  --set autoscaling.scaleUp.periodSeconds=5 --set autoscaling.scaleDown.stabilizationWindowSeconds=5 \
  --set autoscaling.scaleDown.periodSeconds=15 --set rollout.minReadySeconds=5
same "turning it on keeps both pods" 2 "$(k get deployment castor -o jsonpath='{.spec.replicas}')"
for _ in {1..30}; do # the adapter lists metrics every few seconds
  metric=$(cluster kubectl get --raw "/apis/custom.metrics.k8s.io/v1beta1/namespaces/$ns/pods/*/castor_queued_seconds" 2>/dev/null || true)
  case $metric in *'"value"'*) break ;; esac
  sleep 1
done
contains "the metric is there" '"metricName":"castor_queued_seconds"' "$metric"
# More than two pods of one core can do: long sequences, deadlines long enough to queue.
load_rate=12 load_tokens=4096 load_deadline=20s load pressure 90 --payloads 1
check "scaled up" until_ready 3 80
k delete pod pressure --wait >/dev/null
load calm 60
check "scaled down" until_ready 2 150
lossless "nothing was lost on the way down" calm
check "without autoscaling again" release

# shellcheck shell=bash disable=SC2154
# KEDA scales on what Prometheus says, up and down again, and to a safe number without it. Not among
# the checks of a plain run: KEDA compiles for ten minutes.

check "KEDA" cluster keda
keda_release() { # PROMETHEUS
  release --set autoscaling.mode=keda --set autoscaling.maxReplicas=3 \
    --set autoscaling.keda.prometheus="$1" --set autoscaling.keda.pollingInterval=2 \
    --set autoscaling.keda.fallback.failureThreshold=2 --set autoscaling.scaleUp.periodSeconds=5 \
    --set autoscaling.scaleDown.stabilizationWindowSeconds=5 \
    --set autoscaling.scaleDown.periodSeconds=15 --set rollout.minReadySeconds=5
}
check "the chart with a ScaledObject" keda_release http://127.0.0.1:9091
check "KEDA takes it" k wait --for=condition=Ready scaledobject/castor --timeout=60s
same "turning it on keeps both pods" 2 "$(k get deployment castor -o jsonpath='{.spec.replicas}')"
load_rate=12 load_tokens=4096 load_deadline=20s load pressure 90 --payloads 1
check "scaled up" until_ready 3 90
k delete pod pressure --wait >/dev/null
load calm 60
check "scaled down" until_ready 2 150
lossless "nothing was lost on the way down" calm
check "Prometheus is away" keda_release http://127.0.0.1:9
check "the fallback's number of pods" until_ready 3 120
check "Prometheus is back" keda_release http://127.0.0.1:9091
check "and the load's number" until_ready 2 150
check "without autoscaling again" release

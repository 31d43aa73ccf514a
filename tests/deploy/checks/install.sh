# shellcheck shell=bash disable=SC2154,SC2016
# From nothing to two ready pods under the restricted Pod Security Standard.

k delete namespace "$ns" --ignore-not-found --wait >/dev/null
cluster kubectl create namespace "$ns" >/dev/null
cluster kubectl label namespace "$ns" pod-security.kubernetes.io/enforce=restricted >/dev/null
part_begin=$SECONDS
check "helm install waits for two ready pods" release
note "helm took $((SECONDS - part_begin)) s"
same "ready pods" 2 "$(ready_pods | wc -l)"
refused "a privileged pod is refused" 'violates PodSecurity "restricted' \
  k run bad --image=localhost/castor:test --image-pull-policy=Never --privileged
check "helm test" on_node helm test castor -n "$ns" --timeout 2m

# What the process sees and may do. There is no shell to ask in the pod, so the node looks.
refused "no shell in the image" "no such file" k exec "$(ready_pods | sed -n 1p)" -- /bin/sh -c true
pid=$(on_node pgrep -o castor-server)
status=$(on_node cat "/proc/$pid/status")
contains "not root" $'Uid:\t10001' "$status"
contains "no capabilities" "CapBnd:	0000000000000000" "$status"
contains "seccomp filter on" "Seccomp:	2" "$status"
contains "no new privileges" "NoNewPrivs:	1" "$status"
contains "read-only root" " / / ro" "$(on_node awk '$5 == "/" { print " " $4, $5, $6 }' "/proc/$pid/mountinfo" | sed 's#^ [^ ]*# /#')"
contains "the CPU limit is the number of threads" '"threads":1' "$(k logs "$(ready_pods | sed -n 1p)")"
policy=$(k get networkpolicy castor -o jsonpath='{.spec.policyTypes} {.spec.egress}')
contains "the network policy denies both ways (this cluster's network enforces none)" '["Ingress","Egress"]' "$policy"

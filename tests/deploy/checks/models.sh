# shellcheck shell=bash disable=SC2154
# A model from a volume, checked file by file before the server starts; and one that was changed.

store=$work/models
rm -rf "$store"
mkdir -p "$store"
cp -rL "$minilm" "$store/all-MiniLM-L6-v2"
chmod -R a+rX "$store"
cluster kubectl apply -f - >/dev/null <<END
apiVersion: v1
kind: PersistentVolume
metadata: {name: models}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadOnlyMany]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {namespace: $ns, name: models}
  hostPath: {path: $store}
END
k apply -f - >/dev/null <<'END'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: models}
spec:
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  volumeName: models
  resources: {requests: {storage: 1Gi}}
END
(cd "$store/all-MiniLM-L6-v2" && find . -type f -printf '%P\0' | sort -z | xargs -0 sha256sum) >"$work/SHA256SUMS"
k create configmap minilm --from-file=SHA256SUMS="$work/SHA256SUMS" --dry-run=client -o yaml | k apply -f - >/dev/null
cat >"$work/models.yaml" <<'END'
models:
  - name: minilm
    source: {pvc: {claimName: models, path: all-MiniLM-L6-v2}}
    sha256From: {configMap: minilm, key: SHA256SUMS}
modelCheck: {image: "localhost/shell:1"}
END
check "the chart with a model from a claim" release -f "$work/models.yaml" --set rollout.minReadySeconds=1 \
  --set resources.limits.memory=768Mi --set resources.requests.memory=768Mi
contains "the model answers" "3, 384" "$(on_node "$root/build/client/castor" encode \
  "a beaver builds a dam" "a rodent at work" "interest rates rose" --server "dns:///castor.$fqdn:50051" 2>&1)"

printf ' ' >>"$store/all-MiniLM-L6-v2/config.json"
victim=$(ready_pods | sed -n 1p)
k delete pod "$victim" --wait >/dev/null
sleep 10
new=$(comm -23 <(server_pods | sort) <(ready_pods | sort) | sed -n 1p)
contains "a changed file keeps the next pod from starting, and it says which" "config.json" \
  "$(k logs "$new" --all-containers 2>&1 | tail -n 5)"
same "the other pod goes on" 1 "$(ready_pods | wc -l)"
check "without the model again" release --set rollout.minReadySeconds=1
k delete pvc models --wait >/dev/null
cluster kubectl delete pv models --wait >/dev/null 2>&1

# shellcheck shell=bash disable=SC2154,SC2034,SC2086
# Inside the node: process 1 of its namespaces. Sourced by cluster.sh.

# Files that kubelet and kube-proxy would otherwise tune for the whole machine: each is covered by a private copy.
cover_sysctls() {
  local f copy
  mkdir -p /run/sysctl
  for f in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys \
    kernel/keys/root_maxbytes; do
    [[ -e /proc/sys/$f ]] || continue
    copy=/run/sysctl/${f//\//_}
    cat "/proc/sys/$f" >"$copy"
    mount --bind "$copy" "/proc/sys/$f"
  done
}

node_mounts() {
  local d
  mount -t tmpfs -o mode=755 tmpfs /run
  for d in etc var/lib var/log; do                     # private, in memory, gone with the namespace
    mkdir -p "/run/upper/$d" "/run/work/$d"
    mount -t overlay -o "lowerdir=/$d,upperdir=/run/upper/$d,workdir=/run/work/$d" overlay "/$d"
  done
  for d in containerd kubelet; do                      # large things stay on disk: layers, emptyDir volumes
    mkdir -p "$state/$d" "/var/lib/$d"
    mount --bind "$state/$d" "/var/lib/$d"
  done
  mkdir -p /var/lib/etcd /var/lib/cni /var/log/pods "$logs/pods"
  mount -t tmpfs -o mode=700 tmpfs /var/lib/etcd       # no fsync to wait for
  mount --bind "$logs/pods" /var/log/pods              # container logs stay readable after the end
  cover_sysctls
  mount --make-rshared /
}

node_network() {
  hostname "$node_name"
  ip link set lo up
  ip link add node0 type veth peer name node0p         # a link with both ends here: an address and a default route
  ip link set node0p up
  ip link set node0 up
  ip addr add "$node_ip/24" dev node0
  ip route add default dev node0                       # service addresses need some route before they are rewritten
  echo 1 >/proc/sys/net/ipv4/ip_forward
  if [[ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]]; then echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables; fi
  printf '127.0.0.1 localhost\n%s %s\n' "$node_ip" "$node_name" >/etc/hosts
  rm -f /etc/resolv.conf
  printf 'nameserver %s\nsearch default.svc.%s svc.%s %s\noptions ndots:5\n' "$node_ip" $domain $domain $domain >/etc/resolv.conf
}

node_config() {
  mkdir -p /etc/containerd /etc/cni/net.d
  rm -f /etc/cni/net.d/*
  cat >/etc/cni/net.d/10-bridge.conflist <<END
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pod_cidr"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
  # Without CAP_SYS_RESOURCE (sandboxed roots lack it) no process may lower its OOM score, and runc would end with
  # "can't get final child's PID from pipe"; containerd can clamp the score instead.
  local clamp=false
  ((16#$(awk '$1 == "CapEff:" {print $2}' /proc/self/status) >> 24 & 1)) || clamp=true
  cat >/etc/containerd/config.toml <<END
version = 2
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = $clamp
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "${CLUSTER_SNAPSHOTTER:-overlayfs}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$(cni_dir)"
    conf_dir = "/etc/cni/net.d"
END
  # failCgroupV1 false: from 1.35 on the default is to refuse cgroup v1.
  cat >"$conf/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /$group
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $pki/kubelet-server.crt
tlsPrivateKeyFile: $pki/kubelet-server.key
clusterDNS: [$node_ip]
clusterDomain: $domain
resolvConf: ""
seccompDefault: true
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s  # by which Secrets reach pods; 1m by default
# A test machine's disk may well be nearly full: do not evict for that.
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
imageMinimumGCAge: 24h
END
  cat >"$conf/proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: $proxy_mode
clusterCIDR: $pod_cidr
clientConnection: {kubeconfig: $conf/proxy.kubeconfig}
# The table size is not ours to set from inside a network namespace.
conntrack: {maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}
nftables: {minSyncPeriod: 100ms, syncPeriod: 30s}
iptables: {minSyncPeriod: 100ms, syncPeriod: 30s}
END
  cat >"$conf/Corefile" <<END
.:53 {
  bind $node_ip
  errors
  health 127.0.0.1:8080
  ready 127.0.0.1:8181
  kubernetes $domain in-addr.arpa {
    kubeconfig $conf/coredns.kubeconfig
    pods verified
    ttl $dns_ttl
  }
  cache $dns_ttl {
    disable denial $domain
  }
  loadbalance
}
END
  cat >"$conf/coredns.rbac.yaml" <<END
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:coredns"}
rules:
- {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: "system:coredns"}]
END
}

# start NAME CMD...: in the background, log in LOGS/NAME.log; its end is an error that `up` reports.
start() {
  local name=$1
  shift
  (
    rc=0
    "$@" >"$logs/$name.log" 2>&1 || rc=$?
    echo "$name ended with status $rc" >>"$run/failed"
  ) &
}

# until_ok WHAT CMD...: waits for CMD to succeed
until_ok() {
  local what=$1 tries=0
  shift
  until "$@" >/dev/null 2>&1; do
    [[ ! -s $run/failed ]] || die "$(cat "$run/failed")"
    ((++tries < ready_timeout * 5)) || die "timed out waiting for $what"
    sleep 0.2
  done
  say "$what"
}

node_init() {
  export PATH=$bin:$PATH KUBECONFIG=$conf/admin.kubeconfig
  cd /
  trap 'exit 0' TERM INT
  node_mounts
  node_network
  node_config

  start containerd containerd
  start etcd etcd --data-dir /var/lib/etcd --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
  start apiserver kube-apiserver --etcd-servers http://127.0.0.1:2379 \
    --advertise-address "$node_ip" --secure-port 6443 --allow-privileged=true \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
    --client-ca-file "$pki/ca.crt" --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" \
    --kubelet-certificate-authority "$pki/ca.crt" --kubelet-client-certificate "$pki/apiserver-kubelet.crt" \
    --kubelet-client-key "$pki/apiserver-kubelet.key" --kubelet-preferred-address-types InternalIP \
    --service-cluster-ip-range $service_cidr --service-account-issuer "https://kubernetes.default.svc.$domain" \
    --service-account-key-file "$pki/sa.pub" --service-account-signing-key-file "$pki/sa.key" \
    --requestheader-client-ca-file "$pki/front-proxy-ca.crt" --requestheader-allowed-names front-proxy-client \
    --requestheader-extra-headers-prefix X-Remote-Extra- --requestheader-group-headers X-Remote-Group \
    --requestheader-username-headers X-Remote-User --proxy-client-cert-file "$pki/front-proxy.crt" \
    --proxy-client-key-file "$pki/front-proxy.key" --enable-aggregator-routing=true

  until_ok "containerd answers" ctr version
  local tar
  for tar in "$images"/*.tar; do ctr -n k8s.io images import "$tar" >>"$logs/images.log" 2>&1; done
  say "images imported"
  until_ok "apiserver ready" kubectl get --raw /readyz

  # Short HPA periods: a test should not wait for production's.
  start controllers kube-controller-manager --kubeconfig "$conf/controllers.kubeconfig" \
    --authentication-kubeconfig "$conf/controllers.kubeconfig" --authorization-kubeconfig "$conf/controllers.kubeconfig" \
    --bind-address 127.0.0.1 --leader-elect=false --use-service-account-credentials=true \
    --root-ca-file "$pki/ca.crt" --service-account-private-key-file "$pki/sa.key" \
    --cluster-signing-cert-file "$pki/ca.crt" --cluster-signing-key-file "$pki/ca.key" \
    --horizontal-pod-autoscaler-sync-period 5s --horizontal-pod-autoscaler-initial-readiness-delay 5s
  start scheduler kube-scheduler --kubeconfig "$conf/scheduler.kubeconfig" --bind-address 127.0.0.1 \
    --authentication-kubeconfig "$conf/scheduler.kubeconfig" --authorization-kubeconfig "$conf/scheduler.kubeconfig" \
    --leader-elect=false
  start kubelet kubelet --config "$conf/kubelet.yaml" --kubeconfig "$conf/kubelet.kubeconfig" \
    --hostname-override "$node_name" --node-ip "$node_ip" --v 2
  start proxy kube-proxy --config "$conf/proxy.yaml" --hostname-override "$node_name"
  kubectl apply -f "$conf/coredns.rbac.yaml" >/dev/null
  start coredns coredns -conf "$conf/Corefile"

  until_ok "node registered" kubectl get node "$node_name"
  until_ok "node Ready" kubectl wait --for=condition=Ready "node/$node_name" --timeout=2s
  until_ok "DNS ready" curl -sf http://127.0.0.1:8181/ready
  until_ok "default service account there" kubectl get serviceaccount default
  touch "$run/ready"
  while :; do sleep 3600 & wait $! || true; done       # process 1 stays and reaps
}

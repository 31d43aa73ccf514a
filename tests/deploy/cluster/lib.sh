# shellcheck shell=bash disable=SC2154,SC2034
# What the cluster's scripts share: parameters, folders, and small helpers. Sourced, not run.
# Parameters may be set in the environment, by the names in capitals.

work=${CLUSTER_WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/castor/cluster}
kube_version=${KUBERNETES_VERSION:-} # a 1.x.y release
# shellcheck source=deploy/versions.env
source "$here/../../../deploy/versions.env"
kube_version=${kube_version:-$KUBERNETES_VERSION}
coredns_version=$COREDNS_VERSION
helm_version=$HELM_VERSION
keda_version=$KEDA_VERSION
prometheus_adapter_version=$PROMETHEUS_ADAPTER_VERSION
prometheus_operator_version=$PROMETHEUS_OPERATOR_VERSION
prometheus_version=$PROMETHEUS_VERSION
prometheus_image=quay.io/prometheus/prometheus:test
reloader_image=quay.io/prometheus-operator/prometheus-config-reloader:test
jobs=${CLUSTER_JOBS:-$(nproc)} # parallel compile jobs
dns_ttl=${CLUSTER_DNS_TTL:-5}  # seconds; kubeadm's clusters have 30
proxy_mode=${CLUSTER_PROXY_MODE:-nftables} # kube-proxy: nftables | iptables
ready_timeout=${CLUSTER_READY_TIMEOUT:-180} # seconds for `up`

# Addresses inside the private network namespace: free choice, they meet nothing else.
node_name=node0
node_ip=10.99.0.1
pod_cidr=10.244.0.0/24
service_cidr=10.96.0.0/16
api_service_ip=10.96.0.1
domain=cluster.local

say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
die() { say "error: $*"; exit 1; }

# Absolute path; refused under the folders that the node overlays, where it would vanish from the node's sight.
set_work() {
  mkdir -p "$1"
  work=$(readlink -f "$1")
  case $work/ in
    /etc/* | /run/* | /var/run/* | /var/lib/* | /var/log/* | /proc/* | /sys/* | /dev/*) die "WORK may not lie in $work" ;;
  esac
  bin=$work/bin pki=$work/pki conf=$work/conf logs=$work/logs state=$work/state images=$work/images run=$work/run
  group=castor-test-$(printf %s "$work" | cksum | cut -d' ' -f1)   # the cgroup that holds everything
}

deps() {
  local pair missing=()
  for pair in containerd:containerd runc:runc etcd:etcd-server iptables:iptables nft:nftables conntrack:conntrack \
    ip:iproute2 openssl:openssl cc:gcc ethtool:ethtool curl:curl mount:mount nsenter:util-linux pgrep:procps hostname:hostname; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
  done
  [[ -x $(cni_dir)/bridge ]] || missing+=(containernetworking-plugins)
  if ((${#missing[@]})); then printf '%s\n' "${missing[@]}"; fi
}

cni_dir() { if [[ -x /usr/lib/cni/bridge ]]; then echo /usr/lib/cni; else echo /opt/cni/bin; fi; }

need_deps() {
  local missing
  missing=$(deps)
  [[ -z $missing ]] || die "missing packages: ${missing//$'\n'/ }"
}

# on_node NAME CMD...: a background process of the node, ended by `down` like every other
on_node() {
  local name=$1
  shift
  (node_exec setsid "$@" </dev/null >"$logs/$name.log" 2>&1 &)
}

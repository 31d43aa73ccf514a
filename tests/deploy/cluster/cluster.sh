#!/usr/bin/env bash
# A real one-node Kubernetes cluster on this machine, without a registry: for tests of the chart.
#
#   cluster.sh [-w WORK] deps             print the Debian packages that are missing
#   cluster.sh [-w WORK] build            compile Kubernetes, CoreDNS and helm into WORK
#   cluster.sh [-w WORK] build-metrics    compile prometheus-adapter too (for autoscaling)
#   cluster.sh [-w WORK] build-keda       compile KEDA's operator and metrics adapter
#   cluster.sh [-w WORK] build-operator   compile Prometheus and its operator
#   cluster.sh [-w WORK] up               start; returns when the node is Ready and DNS answers
#   cluster.sh [-w WORK] load TAR...      import image archives (docker or OCI layout)
#   cluster.sh [-w WORK] exec CMD...      run CMD on the node: its network, its DNS, KUBECONFIG set
#   cluster.sh [-w WORK] kubectl ARG...   short for exec kubectl ARG...
#   cluster.sh [-w WORK] metrics          start Prometheus and its metrics adapter on the node
#   cluster.sh [-w WORK] keda             start KEDA (it takes over the external metrics API)
#   cluster.sh [-w WORK] operator         start Prometheus's operator, and a Prometheus in a pod
#   cluster.sh [-w WORK] status           processes, memory, node, pods
#   cluster.sh [-w WORK] down             stop everything; keeps binaries, images and logs
#   cluster.sh [-w WORK] clean            down, then remove WORK
#
# WORK defaults to a folder in the user's cache. The whole cluster is one process tree in its own
# mount, pid, network, uts and ipc namespaces. /run, /etc, /var/lib and /var/log are private
# overlays; rules and routes live in the private network namespace; ending its first process ends
# every component, shim and container. Nothing listens on the host, nothing reaches the outside, and
# two clusters with different WORK folders do not meet.
set -euo pipefail

self=$(readlink -f "${BASH_SOURCE[0]}")
here=$(dirname "$self")
# shellcheck source=tests/deploy/cluster/lib.sh
source "$here/lib.sh"
# shellcheck source=tests/deploy/cluster/build.sh
source "$here/build.sh"
# shellcheck source=tests/deploy/cluster/certificates.sh
source "$here/certificates.sh"
# shellcheck source=tests/deploy/cluster/node.sh
source "$here/node.sh"
# shellcheck source=tests/deploy/cluster/addons.sh
source "$here/addons.sh"
# shellcheck source=tests/deploy/cluster/operator.sh
source "$here/operator.sh"

usage() { sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//;p}' "$self"; }

# ---- start, stop, look ----------------------------------------------------------------------------
# The pid (as the host sees it) of the node's process 1, if it runs; the command line is checked against pid reuse.
node_pid() {
  local pid
  [[ -s $run/init.pid ]] || return 1
  pid=$(<"$run/init.pid")
  [[ -r /proc/$pid/cmdline ]] || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF -- "-w $work _init" || return 1
  printf '%s\n' "$pid"
}

# Every mounted cgroup hierarchy (v1: one per controller; v2: one).
cgroup_roots() { awk '$3 == "cgroup" || $3 == "cgroup2" {print $2}' /proc/self/mounts; }

make_cgroups() {
  local root c
  while read -r root; do
    mkdir -p "$root/$group"
    if [[ -e $root/$group/cpuset.cpus && ! -e $root/cgroup.controllers ]]; then    # v1: a new cpuset starts out empty
      cat "$root/cpuset.cpus" >"$root/$group/cpuset.cpus"
      cat "$root/cpuset.mems" >"$root/$group/cpuset.mems"
    fi
    if [[ -s $root/cgroup.controllers ]]; then                                   # v2
      for c in $(<"$root/cgroup.controllers"); do
        echo "+$c" >"$root/cgroup.subtree_control" 2>/dev/null || true
        echo "+$c" >"$root/$group/cgroup.subtree_control" 2>/dev/null || true
      done
    fi
    mkdir -p "$root/$group/node"
    if [[ -e $root/$group/node/cpuset.cpus && ! -e $root/cgroup.controllers ]]; then
      cat "$root/cpuset.cpus" >"$root/$group/node/cpuset.cpus"
      cat "$root/cpuset.mems" >"$root/$group/node/cpuset.mems"
    fi
  done < <(cgroup_roots)
}

remove_cgroups() {
  local root tries
  while read -r root; do
    [[ -d $root/$group ]] || continue
    for tries in 1 2 3 4 5; do
      find "$root/$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [[ -d $root/$group ]] || break
      sleep "0.$tries"
    done
    [[ ! -d $root/$group ]] || say "warning: $root/$group could not be removed"
  done < <(cgroup_roots)
}

up() {
  local begin=$SECONDS parent child deadline
  [[ $(id -u) == 0 ]] || die "root is needed"
  need_deps
  [[ -x $bin/kubelet && -x $bin/coredns ]] || die "run build first"
  if node_pid >/dev/null; then
    [[ -e $run/ready ]] && { say "already up"; return; }
    die "a start is under way or stuck; run down first"
  fi
  forget
  mkdir -p "$run" "$logs" "$state"
  rm -rf "${logs:?}"/*
  certificates
  make_cgroups
  # The child joins the node's cgroup first, so that the control plane's memory and CPU can be read there.
  # shellcheck disable=SC2016
  setsid bash -c 'g=$1; shift; while read -r r; do echo $$ >"$r/$g/node/cgroup.procs" || true; done; exec "$@"' \
    join "$group" unshare --mount --pid --net --uts --ipc --fork --kill-child --mount-proc --propagation private \
    bash "$self" -w "$work" _init < <(cgroup_roots) >"$logs/init.log" 2>&1 &
  parent=$!
  deadline=$((SECONDS + ready_timeout))
  child=
  until [[ -n $child ]]; do
    ((SECONDS < deadline)) || die "the node did not start: $(cat "$logs/init.log")"
    kill -0 "$parent" 2>/dev/null || die "the node did not start: $(cat "$logs/init.log")"
    sleep 0.1
    child=$(pgrep -P "$parent" -f -- "-w $work _init" || true)
  done
  echo "$child" >"$run/init.pid"
  until [[ -e $run/ready ]]; do
    node_pid >/dev/null || { tail -n 20 "$logs/init.log" >&2; die "the node ended; see $logs"; }
    ((SECONDS < deadline)) || { tail -n 20 "$logs/init.log" >&2; die "not ready after ${ready_timeout}s; see $logs"; }
    sleep 0.2
  done
  say "up in $((SECONDS - begin)) s; logs in $logs"
}

forget() {
  remove_cgroups
  rm -rf --one-file-system "${run:?}" "${state:?}" "${pki:?}" "${conf:?}"
}

down() {
  local pid tries
  if pid=$(node_pid); then
    kill -KILL "$pid"                                  # process 1 of a pid namespace: the kernel ends all the rest
    for ((tries = 0; tries < 100; tries++)); do
      [[ -e /proc/$pid ]] || break
      sleep 0.1
    done
    [[ ! -e /proc/$pid ]] || die "process $pid does not end"
  fi
  forget
  say "down"
}

node_exec() {
  local pid
  pid=$(node_pid) || die "not up"
  # shellcheck disable=SC2016
  KUBECONFIG=$conf/admin.kubeconfig PATH=$bin:$PATH exec nsenter -t "$pid" -m -u -i -n -p \
    sh -c 'cd "$0" 2>/dev/null || cd /; exec "$@"' "$PWD" "$@"
}

load() {
  local tar
  for tar in "$@"; do (node_exec ctr -n k8s.io images import "$(readlink -f "$tar")"); done
}

status() {
  local pid root
  pid=$(node_pid) || { echo "not up"; return 1; }
  echo "process 1 of the node: $pid"
  (node_exec ps -eo pid,rss,etimes,args --sort=-rss) | grep -vE '_init$|ps -eo' | cut -c1-110
  root=$(cgroup_roots | grep -E '/memory$' || true)
  if [[ -n $root ]]; then
    awk '$1 == "total_rss" {printf "resident memory of the components: %d MiB\n", $2 / 1048576}' "$root/$group/node/memory.stat"
  fi
  (node_exec kubectl get nodes,pods -A -o wide)
}

# ---- command line ---------------------------------------------------------------------------------
while getopts w:h option; do
  case $option in
    w) work=$OPTARG ;;
    h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
command=${1:-help}
(($# == 0)) || shift
case $command in help) usage; exit 0 ;; esac
set_work "$work"
case $command in
  deps) deps ;;
  build) build ;;
  build-metrics) build_metrics ;;
  build-keda) build_keda ;;
  build-operator) build_operator ;;
  load) load "$@" ;;
  up) up ;;
  exec) node_exec "$@" ;;
  kubectl) node_exec kubectl "$@" ;;
  metrics) metrics ;;
  keda) keda ;;
  operator) operator ;;
  status) status ;;
  down) down ;;
  clean) down; rm -rf "${work:?}" ;;
  _init) node_init ;;
  _targets) targets ;;
  *) usage >&2; exit 2 ;;
esac

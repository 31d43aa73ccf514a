#!/usr/bin/env bash
# The chart on a real one-node Kubernetes cluster, which it makes on this machine: install, rollouts,
# drains, kills, scaling, bad models, renewed secrets and memory limits, under load; and the chart's
# guide, command by command.
#   tests/deploy/run.sh [--from-build DIR] [--keep] [--log FILE] [CHECK...]
#     --from-build DIR   the image from this built tree, not from the Dockerfile (see image.sh)
#     --keep             leave the cluster up; a later run finds it and goes on from there
#     --log FILE         the verdicts, and what it took
#     CHECK...           of checks/, without .sh; default: all but keda, in order
# Needs root and Debian 12; installs what is missing. The first run compiles Kubernetes (some ten
# minutes), the image (some seven), and the programs in build/ if they are not there.
# Environment: CLUSTER_WORK, CASTOR_IMAGE_*.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=${CLUSTER_WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/castor/cluster}
logs=$work/test-logs
image=() keep=false log=/dev/null
all=(install names rollout disruption kill scaling broken secrets models memory guide)
while [ $# -gt 0 ]; do
  case $1 in
    --from-build) image=(--from-build "$2"); shift 2 ;;
    --keep) keep=true; shift ;;
    --log) log=$2; shift 2 ;;
    -h | --help) sed -n '2,/^set -euo/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    -*) echo "run.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
    *) break ;;
  esac
done
checks=("${@:-${all[@]}}")
# A cluster as kubeadm makes it, in what clients of a headless Service notice.
export CLUSTER_DNS_TTL=${CLUSTER_DNS_TTL:-30}
# shellcheck source=tests/deploy/lib.sh
source "$root/tests/deploy/lib.sh"

begin=$SECONDS
mkdir -p "$work/images" "$logs"
rm -f "$logs"/*
install_packages() {
  local missing
  missing=$(cluster deps)
  for pair in buildah:buildah debootstrap:debootstrap prometheus:prometheus; do
    command -v "${pair%%:*}" >/dev/null || missing+=" ${pair##*:}"
  done
  # shellcheck disable=SC2086
  [ -z "$missing" ] || apt-get install -y --no-install-recommends $missing >"$logs/apt.log"
}
install_packages
"$root/deploy/setup.sh" --dev --model >/dev/null
export PATH=$root/.deps/bin:$PATH
# The command-line programs that the checks call from the node.
[ -e "$root/build/build.ninja" ] ||
  cmake -G Ninja -S "$root" -B "$root/build" -DCMAKE_BUILD_TYPE=Release -DCASTOR_CUDA=OFF \
    >"$logs/configure.log"
cmake --build "$root/build" --target castor castor-load castor-server >"$logs/build.log"
python=$("$root/tests/deploy/python.sh")
export minilm
minilm=$(readlink -f "$root/.deps/minilm")
cluster build
cluster build-metrics
cluster build-operator
case " ${checks[*]} " in *" keda "*) cluster build-keda ;; esac
note "tools are there after $((SECONDS - begin)) s"
if ! cluster exec true 2>/dev/null; then
  "$root/tests/deploy/image.sh" "${image[@]}" "$work/images/castor.tar"
  note "the image is there after $((SECONDS - begin)) s: $(du -m "$work/images/castor.tar" | cut -f1) MB"
  cluster up
  cluster metrics
fi
$keep || trap 'cluster down' EXIT

{
  printf 'Kubernetes %s, commit %s, %s\n' "$(cluster kubectl version -o json | python3 -c 'import json,sys; print(json.load(sys.stdin)["serverVersion"]["gitVersion"])')" \
    "$(git -C "$root" rev-parse --short=12 HEAD)" "$(date -u +%FT%TZ)"
  for name in "${checks[@]}"; do
    printf '\n== %s\n' "$name"
    part=$SECONDS
    # shellcheck disable=SC1090
    source "$root/tests/deploy/checks/$name.sh"
    note "$name took $((SECONDS - part)) s"
  done
  printf '\n%d passed, %d failed, %d s in all\n' "$passed" "$failed" $((SECONDS - begin))
  cluster status | grep -E 'resident memory' || true
  ((failed == 0))
} 2>&1 | tee "$log"

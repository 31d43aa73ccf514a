#!/usr/bin/env bash
# Installs what run.sh renders and validates with, at the versions of deploy/versions.env: helm and
# kubeconform, built by Go, kubernetes-validate from PyPI, and the schemas of custom resources, out of
# their projects' Go modules. Idempotent: a second run finds everything.
#   tools.sh [--render-only] [--print-dir]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=deploy/versions.env
source "$here/../../../deploy/versions.env"

usage() {
  cat <<TEXT
Usage: tools.sh [--render-only] [--print-dir]
  --render-only  helm and Python's YAML only, without what validates
  --print-dir    print the folder that things are installed in, install nothing
  -h, --help     this text
Environment: CASTOR_CHART_TOOLS_DIR overrides the folder (default: under the user's cache).
TEXT
}

say() { printf 'tools: %s\n' "$*" >&2; }
die() { printf 'tools: error: %s\n' "$*" >&2; exit 1; }

render_only=false print_dir=false
for arg in "$@"; do
  case $arg in
    --render-only) render_only=true ;;
    --print-dir) print_dir=true ;;
    -h | --help) usage; exit 0 ;;
    *) printf 'tools.sh: unknown option %s (see --help)\n' "$arg" >&2; exit 2 ;;
  esac
done

cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}
tools=${CASTOR_CHART_TOOLS_DIR:-$cache/castor/chart}
if $print_dir; then printf '%s\n' "$tools"; exit 0; fi
mkdir -p "$tools/bin" "$tools/src" || die "cannot create $tools: set CASTOR_CHART_TOOLS_DIR"
exec 9>"$tools/.lock"
flock 9 # two runs at once take turns

# Runs $2.. once, and leaves a mark named $1. An interrupted step leaves no mark and runs again.
once() {
  local mark=$tools/.done-$1
  shift
  [ -e "$mark" ] && return
  "$@"
  touch "$mark"
}

install_program() { # $1: name; $2: package; $3: version
  say "building $1 $3"
  # The versions of a released program are stamped in by its own build; these have to be here, too.
  (cd "$tools/src" && GOFLAGS=-mod=mod GOBIN=$tools/bin CGO_ENABLED=0 \
    go install -ldflags "-s -w $4" "$2@v$3") || die "cannot build $1 $3: is there a network?"
}

module() { # $1: module; $2: version. Prints its folder.
  (cd "$tools/src" && go mod download -json "$1@v$2") |
    sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p'
}

install_helm() {
  local found=
  # The right one may be on the path, or among the cluster's programs.
  if found=$(PATH=$PATH:$cache/castor/cluster/bin command -v helm) &&
    [[ $("$found" version --short 2>/dev/null) =~ ^v$HELM_VERSION($|[^0-9.]) ]]; then
    install -m 755 "$found" "$tools/bin/helm"
    return
  fi
  install_program helm helm.sh/helm/v3/cmd/helm "$HELM_VERSION" \
    "-X helm.sh/helm/v3/internal/version.version=v$HELM_VERSION"
}
install_kubeconform() {
  install_program kubeconform github.com/yannh/kubeconform/cmd/kubeconform "$KUBECONFORM_VERSION" \
    "-X main.version=v$KUBECONFORM_VERSION"
}
# Any python3 does. YAML's reader comes with kubernetes-validate.
install_python() {
  say "kubernetes-validate $KUBERNETES_VALIDATE_VERSION"
  python3 -m venv --clear "$tools/venv" || die "python3 cannot make a virtual environment"
  "$tools/venv/bin/python" -m pip install -q --disable-pip-version-check \
    "kubernetes-validate==$KUBERNETES_VALIDATE_VERSION" || die "cannot install from PyPI: network?"
}
install_schemas() {
  local folders=()
  say "schemas"
  folders+=("$(module sigs.k8s.io/gateway-api "$GATEWAY_API_VERSION")/config/crd/standard")
  folders+=("$(module sigs.k8s.io/gateway-api-inference-extension \
    "$INFERENCE_EXTENSION_VERSION")/config/crd/bases")
  folders+=("$(module github.com/kedacore/keda/v2 "$KEDA_VERSION")/config/crd/bases")
  folders+=("$(module github.com/kserve/kserve "$KSERVE_VERSION")/config/crd/full")
  folders+=("$(module github.com/prometheus-operator/prometheus-operator \
    "$PROMETHEUS_OPERATOR_VERSION")/example/prometheus-operator-crd")
  "$tools/venv/bin/python" "$here/make_schemas.py" "$tools/schemas" "${folders[@]}" ||
    die "cannot make the schemas"
}

go=$("$here/../../../deploy/go.sh") || die "there is no Go, and none can be installed: network?"
PATH=${go%/*}:$PATH
once "helm-$HELM_VERSION" install_helm
once "validate-$KUBERNETES_VALIDATE_VERSION" install_python
if ! $render_only; then
  once "kubeconform-$KUBECONFORM_VERSION" install_kubeconform
  customs="$GATEWAY_API_VERSION-$INFERENCE_EXTENSION_VERSION-$KEDA_VERSION-$KSERVE_VERSION"
  once "schemas-$customs-$PROMETHEUS_OPERATOR_VERSION" install_schemas
fi

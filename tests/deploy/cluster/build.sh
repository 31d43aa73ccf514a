# shellcheck shell=bash disable=SC2034,SC2154,SC2164
# Compiles what the cluster runs, from Go's module proxy. Sourced by cluster.sh.

go_env() {
  local go
  go=$("$here/../../../deploy/go.sh")
  PATH=${go%/*}:$PATH
  export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -buildvcs=false -p=$jobs" GOTOOLCHAIN="${GOTOOLCHAIN:-local}"
}

# mark BIN/.NAME-VERSION: NAME is now there in this version, and in no other
mark() {
  rm -f "${1%%-[0-9]*}"-[0-9]*
  touch "$1"
}

# k8s.io/kubernetes is published as a module whose go.mod points to its own staging folders, which the module does not
# carry; the same modules are published at v0.x.y. So: a module of ours with those replacements.
build_kubernetes() {
  local dir=$work/src/kubernetes minor flags p commands
  local stamp=$bin/.kubernetes-$kube_version
  [[ -e $stamp ]] && return
  say "building Kubernetes $kube_version"
  mkdir -p "$dir"
  cd "$dir"
  minor=${kube_version#1.} minor=${minor%%.*}
  local upstream
  upstream=$(go mod download -json "k8s.io/kubernetes@v$kube_version" | sed -n 's/^\t"GoMod": "\(.*\)",/\1/p')
  {
    printf 'module castor-test\n\n'
    grep -E '^(go|godebug) ' "$upstream"
    printf '\nrequire k8s.io/kubernetes v%s\n\n' "$kube_version"
    sed -n 's#^[[:space:]]*\(k8s.io/[a-z0-9-]*\) => ./staging/.*#replace \1 => \1 v0.'"${kube_version#1.}"'#p' "$upstream"
  } >go.mod
  printf 'package main\n\nfunc main() {}\n' >main.go
  # The version must be stamped in: helm and the components' skew checks read it.
  flags="-s -w"
  for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $p.gitVersion=v$kube_version -X $p.gitMajor=1 -X $p.gitMinor=$minor -X $p.gitTreeState=clean"
  done
  commands=()
  for p in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do
    commands+=("k8s.io/kubernetes/cmd/$p")
  done
  go build -mod=mod -trimpath -ldflags "$flags" -o "$bin/" "${commands[@]}"
  mark "$stamp"
}

build_coredns() {
  local dir=$work/src/coredns stamp=$bin/.coredns-$coredns_version
  [[ $stamp -nt $here/src/coredns.go ]] && return
  say "building CoreDNS $coredns_version"
  mkdir -p "$dir"
  cp "$here/src/coredns.go" "$dir/main.go"
  cd "$dir"
  printf 'module coredns\n\ngo 1.24.0\n\nrequire github.com/coredns/coredns v%s\n' "$coredns_version" >go.mod
  go mod tidy
  go build -trimpath -ldflags '-s -w' -o "$bin/coredns" .
  mark "$stamp"
}

# go_tool NAME MODULE COMMAND VERSION [LDFLAGS]: from a module of ours that requires it, since `go install` also asks for
# the list of versions, which a module proxy may not have.
go_tool() {
  local dir=$work/src/$1 stamp=$bin/.$1-$4
  [[ -e $stamp ]] && return
  say "building $1 $4"
  mkdir -p "$dir"
  cd "$dir"
  printf 'package main\n\nfunc main() {}\n' >main.go
  printf 'module castor-test\n\ngo 1.24.0\n\nrequire %s v%s\n' "$2" "$4" >go.mod
  go build -mod=mod -trimpath -ldflags "-s -w ${5:-}" -o "$bin/$1" "$2/$3"
  mark "$stamp"
}

# make_image NAME DIR [CONFIG-JSON]: packs DIR as a one-layer image archive that `ctr images import` understands.
# CONFIG-JSON is the image's "config" object, for instance '{"Entrypoint":["/server"],"User":"65532:65532"}'.
make_image() {
  local name=$1 dir=$2 config=${3:-'{}'} tmp digest out
  out=$images/$(printf %s "$name" | tr '/:' '__').tar
  tmp=$(mktemp -d "$work/image.XXXXXX")
  tar -C "$dir" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$tmp/layer.tar" .
  digest=$(sha256sum "$tmp/layer.tar" | cut -d' ' -f1)
  printf '{"architecture":"%s","os":"linux","config":%s,"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$(go_arch)" "$config" "$digest" >"$tmp/config.json"
  printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$name" >"$tmp/manifest.json"
  mkdir -p "$images"
  tar -C "$tmp" -cf "$out" manifest.json config.json layer.tar
  rm -r "$tmp"
  printf '%s\n' "$out"
}

go_arch() { case $(uname -m) in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) uname -m ;; esac; }

build_pause() {
  [[ -e $images/localhost_pause_1.tar ]] && return
  local root
  root=$(mktemp -d "$work/pause.XXXXXX")
  cc -static -Os -s -o "$root/pause" "$here/src/pause.c"
  make_image localhost/pause:1 "$root" '{"Entrypoint":["/pause"],"User":"65535:65535"}' >/dev/null
  rm -r "$root"
}

# What the chart checks models' files in: this machine's own programs, with their libraries.
build_shell() {
  [[ -e $images/localhost_shell_1.tar ]] && return
  local root program file
  root=$(mktemp -d "$work/shell.XXXXXX")
  for program in sh find grep sed sha256sum; do
    install -D "$(command -v "$program")" "$root/bin/$program"
    for file in $(ldd "$(command -v "$program")" | grep -o '/[^ ]*'); do install -D "$file" "$root$file"; done
  done
  make_image localhost/shell:1 "$root" '{"Env":["PATH=/bin"]}' >/dev/null
  rm -r "$root"
}

build() {
  need_deps
  mkdir -p "$bin" "$images"
  go_env
  build_pause
  build_shell
  build_kubernetes
  build_coredns
  go_tool helm helm.sh/helm/v3 cmd/helm "$helm_version" "-X helm.sh/helm/v3/internal/version.version=v$helm_version"
}

build_metrics() {
  mkdir -p "$bin"
  go_env
  go_tool prometheus-adapter sigs.k8s.io/prometheus-adapter cmd/adapter "$prometheus_adapter_version"
}

# KEDA's go.mod has replacements, which only count in the main module: they are copied into ours.
build_keda() {
  local dir=$work/src/keda stamp=$bin/.keda-$keda_version module=github.com/kedacore/keda/v2 source
  [[ -e $stamp ]] && return
  mkdir -p "$dir" "$bin"
  go_env
  say "building KEDA $keda_version"
  cd "$dir"
  source=$(go mod download -json "$module@v$keda_version" | sed -n 's/^\t"Dir": "\(.*\)",/\1/p')
  printf 'package main\n\nfunc main() {}\n' >main.go
  {
    printf 'module castor-test\n\n'
    grep -E '^go ' "$source/go.mod"
    printf '\nrequire %s v%s\n\n' "$module" "$keda_version"
    sed -n '/=>/{s/^replace //;s/^[[:space:]]*/replace /;p}' "$source/go.mod"
  } >go.mod
  go build -mod=mod -trimpath -ldflags '-s -w' -o "$bin/keda-operator" "$module/cmd/operator"
  go build -mod=mod -trimpath -ldflags '-s -w' -o "$bin/keda-adapter" "$module/cmd/adapter"
  rm -rf "$bin/keda-crds"
  cp -r --no-preserve=mode "$source/config/crd/bases" "$bin/keda-crds"
  mark "$stamp"
}

# Prometheus with the operator that configures it from ServiceMonitors, as images of the names that the operator's users
# know. Prometheus with one kind of service discovery, that of Kubernetes: all of them would double its dependencies.
build_operator() {
  local dir=$work/src/operator stamp=$bin/.operator-$prometheus_operator_version-$prometheus_version
  local module=github.com/prometheus-operator/prometheus-operator source root
  [[ -e $stamp ]] && return
  mkdir -p "$bin" "$dir"
  go_env
  go_tool prometheus-operator $module cmd/operator "$prometheus_operator_version"
  go_tool prometheus-config-reloader $module cmd/prometheus-config-reloader "$prometheus_operator_version"
  say "building Prometheus $prometheus_version"
  cd "$dir"
  source=$(go mod download -json "github.com/prometheus/prometheus@v$prometheus_version" | sed -n 's/^\t"Dir": "\(.*\)",/\1/p')
  rm -rf prometheus
  cp -r --no-preserve=mode "$source" prometheus
  rm prometheus/plugins/*
  printf 'package plugins\n\nimport _ "github.com/prometheus/prometheus/discovery/kubernetes"\n' >prometheus/plugins/plugins.go
  printf 'package main\n\nfunc main() {}\n' >main.go
  printf 'module castor-test\n\ngo 1.24.0\n\nrequire github.com/prometheus/prometheus v%s\nreplace github.com/prometheus/prometheus => ./prometheus\n' \
    "$prometheus_version" >go.mod
  root=$(mktemp -d "$work/operator.XXXXXX")
  mkdir -p "$root/prometheus/bin" "$root/reloader/bin"
  go build -mod=mod -trimpath -ldflags '-s -w' -o "$root/prometheus/bin/prometheus" github.com/prometheus/prometheus/cmd/prometheus
  cp "$bin/prometheus-config-reloader" "$root/reloader/bin/"
  make_image "$prometheus_image" "$root/prometheus" '{"Entrypoint":["/bin/prometheus"]}' >/dev/null
  make_image "$reloader_image" "$root/reloader" '{"Entrypoint":["/bin/prometheus-config-reloader"]}' >/dev/null
  rm -rf "$root" prometheus "$bin/operator-crds"
  source=$(go mod download -json "$module@v$prometheus_operator_version" | sed -n 's/^\t"Dir": "\(.*\)",/\1/p')
  cp -r --no-preserve=mode "$source/example/prometheus-operator-crd" "$bin/operator-crds"
  rm -f "$bin"/.operator-*
  touch "$stamp"
}

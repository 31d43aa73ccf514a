#!/usr/bin/env bash
# From a bare machine to the first answer: sets up, builds, serves all-MiniLM-L6-v2 on loopback, asks
# it for attention and for sentence embeddings, shows its metrics and stops it. A second run finds
# everything in place and takes seconds.
#   deploy/quickstart.sh           the tour, on free ports
#   deploy/quickstart.sh --serve   only serve, in the foreground, on the default ports
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

serve=false
for arg in "$@"; do
  case $arg in
    --serve) serve=true ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) printf 'quickstart: unknown option %s (see --help)\n' "$arg" >&2; exit 2 ;;
  esac
done

steps=7 begun=0
if $serve; then steps=3; fi
step() { printf '\n== %d of %d: %s\n' $((begun += 1)) $steps "$*"; }
die() { printf 'quickstart: error: %s\n' "$*" >&2; exit 1; }
show() { # prints a command as a user would type it, and runs it
  local word line='$'
  for word in "$@"; do
    case $word in
      *" "*) line+=" \"$word\"" ;;
      *) line+=" $word" ;;
    esac
  done
  printf '%s\n' "$line"
  "$@"
}

step "setting up"
deploy/setup.sh --model

step "building into build/ (on two slow cores the first time takes 15 minutes)"
log=$(mktemp)
server=
cleanup() {
  if [ -n "$server" ]; then kill -KILL "$server" 2>/dev/null || true; fi
  rm -f "$log"
}
trap cleanup EXIT
if ! cmake -G Ninja -B build -S . -DCMAKE_BUILD_TYPE=Release >"$log" 2>&1; then
  cat "$log" >&2
  die "CMake could not configure build/"
fi
NINJA_STATUS='[%f of %t, %e s] ' cmake --build build --target castor-server castor
castor=build/client/castor
model=minilm=.deps/minilm

if $serve; then
  step "serving; in another terminal try $castor --help; Ctrl-C stops"
  rm -f "$log"
  exec build/server/castor-server --model "$model" --http-listen 127.0.0.1:8080
fi

step "starting castor-server"
build/server/castor-server --listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
  --metrics-listen 127.0.0.1:0 --model "$model" 2>"$log" &
server=$!
# The server prints where it listens once all models are loaded.
listening=
for _ in $(seq 600); do
  listening=$(grep -m 1 ' listening ' "$log" || true)
  [ -n "$listening" ] && break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
cat "$log"
[ -n "$listening" ] || die "the server did not start; its log is above"
address=$(sed -n 's/.*grpc=\([^ ]*\).*/\1/p' <<<"$listening")
metrics=$(sed -n 's/.*metrics=\([^ ]*\).*/\1/p' <<<"$listening")
http=$(sed -n 's/.*http=\([^ ]*\).*/\1/p' <<<"$listening")

step "attention: random sequences of three lengths, checked by the client's own computation"
show "$castor" attend --server "$address" --lengths 7,128,300 --heads 4 --head-dim 64

step "encoding: two sentences that mean much the same, and one that does not"
show "$castor" encode --server "$address" \
  "The cat sleeps on the warm windowsill." \
  "A cat is napping by the sunny window." \
  "Interest rates rose by half a point."

step "the same over HTTP, as OpenAI's clients ask, at http://$http/v1"
curl --silent --show-error --fail --max-time 10 "http://$http/v1/embeddings" \
  --data '{"model": "minilm", "input": "The cat sleeps on the warm windowsill.", "dimensions": 4}'
echo

step "metrics, at http://$metrics/metrics"
curl --silent --show-error --fail --max-time 10 "http://$metrics/metrics" |
  awk '/^castor_/ && !/_bucket\{/ && $NF != 0 && shown++ < 16'

step "stopping"
kill -TERM "$server"
rc=0
wait "$server" || rc=$?
server=
tail -n 3 "$log"
[ "$rc" -eq 0 ] || die "the server ended with exit code $rc"
printf 'castor-server ended with exit code 0\n'

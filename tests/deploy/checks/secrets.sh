# shellcheck shell=bash disable=SC2154,SC2034
# TLS and tokens from Secrets; both are renewed under load, and no call is lost.

papers=$work/papers
rm -rf "$papers"
mkdir -p "$papers"
authority() {
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=test authority" \
    -keyout "$papers/ca.key" -out "$papers/ca.pem" 2>/dev/null
}
certificate() { # for the names of both Services
  openssl req -newkey rsa:2048 -nodes -subj /CN=castor -keyout "$papers/tls.key" 2>/dev/null \
    -addext "subjectAltName=DNS:castor.$fqdn,DNS:castor-headless.$fqdn,DNS:castor.$ns.svc,DNS:castor,DNS:castor-headless" |
    openssl x509 -req -days 1 -CA "$papers/ca.pem" -CAkey "$papers/ca.key" -CAcreateserial \
      -copy_extensions copy -out "$papers/tls.crt" 2>/dev/null
}
secret() { # NAME KEY=FILE...
  local name=$1
  shift
  k create secret generic "$name" "${@/#/--from-file=}" --dry-run=client -o yaml | k apply -f - >/dev/null
}
token() { # FILE: for a new token, whose entry is added to the callers
  "$root/build/server/castor-server" token load --token-file "$1" --add-to "$papers/callers.toml"
}
tls_secret() { secret castor-tls "tls.crt=$papers/tls.crt" "tls.key=$papers/tls.key" "ca.crt=$papers/ca.pem"; }

check "plaintext to begin with" release --set rollout.minReadySeconds=1
authority
certificate
tls_secret
token "$papers/token-1"
secret castor-callers "callers.toml=$papers/callers.toml"
secret castor-token "token=$papers/token-1"
check "the chart with TLS and tokens" release --set tls.enabled=true --set tls.secretName=castor-tls \
  --set auth.enabled=true --set auth.secretName=castor-callers --set tests.tokenSecretName=castor-token \
  --set rollout.minReadySeconds=1
check "helm test, over TLS with a token" on_node helm test castor -n "$ns" --timeout 2m
refused "plaintext is turned away" "Try --tls" on_node "$root/build/client/castor" attend --lengths 16 \
  --server "dns:///castor.$fqdn:50051" --timeout 5
refused "no token is no caller" "UNAUTHENTICATED" on_node "$root/build/client/castor" attend --lengths 16 \
  --server "dns:///castor.$fqdn:50051" --timeout 5 --ca "$papers/ca.pem"

serial_of() { # the certificate that a pod shows
  on_node timeout 10 openssl s_client -connect "$1:50051" -alpn h2 </dev/null 2>/dev/null |
    openssl x509 -noout -serial
}
load_container='      env: [{name: CASTOR_CA, value: /papers/ca.crt}, {name: CASTOR_TOKEN_FILE, value: /token/token}]
      volumeMounts: [{name: papers, mountPath: /papers}, {name: token, mountPath: /token}]'
load_volumes='  volumes:
    - {name: papers, secret: {secretName: castor-tls, items: [{key: ca.crt, path: ca.crt}]}}
    - {name: token, secret: {secretName: castor-token}}'
load renewal 150
load_container='' load_volumes=''
addresses=$(on_node getent ahostsv4 "castor-headless.$fqdn" | awk '{ print $1 }' | sort -u)
# Whether every pod has taken in so many changed files of this kind.
taken() { # WHAT COUNT
  local address
  for address in $addresses; do
    on_node curl -s "http://$address:9464/metrics" |
      awk -v count="$2" "/^castor_reloads_total.*result=\"taken\",what=\"$1\"/ { found = \$2 >= count } END { exit !found }" || return 1
  done
}
until_taken() { # WHAT COUNT
  local i
  for ((i = 0; i < 100; i++)); do
    if taken "$1" "$2"; then echo "after $i s"; return; fi
    sleep 1
  done
  return 1
}
for round in 1 2; do
  shown=$(serial_of "${addresses%%$'\n'*}")
  certificate
  tls_secret
  # A new token is known to every server before callers have it, and the old one until they all do.
  rm -f "$papers/token-new"
  token "$papers/token-new"
  secret castor-callers "callers.toml=$papers/callers.toml"
  check "certificate $round is taken in by every pod" until_taken certificates "$round"
  check "token $round is taken in by every pod" until_taken callers "$round"
  if [ "$(serial_of "${addresses%%$'\n'*}")" != "$shown" ]; then pass "certificate $round is shown"; else fail "the old certificate is shown"; fi
  cp "$papers/token-new" "$papers/token-1"
  secret castor-token "token=$papers/token-1"
  sleep 20
done
lossless "castor-load while certificates and tokens were renewed twice" renewal
check "without TLS again" release --set rollout.minReadySeconds=1

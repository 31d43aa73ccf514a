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
token() { # FILE: a caller's entry is printed, its token goes to the file
  "$root/build/server/castor-server" token load --token-file "$1"
}
tls_secret() { secret castor-tls "tls.crt=$papers/tls.crt" "tls.key=$papers/tls.key" "ca.crt=$papers/ca.pem"; }

check "plaintext to begin with" release --set rollout.minReadySeconds=1
authority
certificate
tls_secret
token "$papers/token-1" >"$papers/callers.toml"
secret castor-callers "callers.toml=$papers/callers.toml"
secret castor-token "token=$papers/token-1"
check "the chart with TLS and tokens" release --set tls.enabled=true --set tls.secretName=castor-tls \
  --set auth.enabled=true --set auth.secretName=castor-callers --set tests.tokenSecretName=castor-token \
  --set rollout.minReadySeconds=1
check "helm test, over TLS with a token" on_node helm test castor -n "$ns" --timeout 2m
refused "plaintext is turned away" "error" on_node "$root/build/client/castor" attend --lengths 16 \
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
address=$(k get pod "$(ready_pods | head -n 1)" -o jsonpath='{.status.podIP}')
for round in 1 2; do
  before=$(serial_of "$address")
  certificate
  tls_secret
  # The new token is known before callers have it, and the old one until they all do.
  rm -f "$papers/token-new"
  token "$papers/token-new" >>"$papers/callers.toml"
  secret castor-callers "callers.toml=$papers/callers.toml"
  for ((i = 0; i < 60; i++)); do
    [ "$(serial_of "$address")" = "$before" ] || break
    sleep 1
  done
  if [ "$(serial_of "$address")" != "$before" ]; then pass "certificate $round is in use after $i s"; else fail "certificate $round is not in use after $i s"; fi
  cp "$papers/token-new" "$papers/token-1"
  secret castor-token "token=$papers/token-1"
  sleep 20
done
lossless "castor-load while certificates and tokens were renewed twice" renewal
check "without TLS again" release --set rollout.minReadySeconds=1

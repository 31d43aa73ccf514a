# shellcheck shell=bash disable=SC2154,SC2034
# The cluster's authorities, certificates and kubeconfigs. Sourced by cluster.sh.

new_ca() {
  openssl req -x509 -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/CN=$2" \
    -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature -keyout "$pki/$1.key" -out "$pki/$1.crt" 2>/dev/null
}

# new_cert FILE CA SUBJECT [SANS]
new_cert() {
  local ext="keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth"
  [[ -z ${4:-} ]] || ext+=$'\n'"subjectAltName=$4"
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$3" -keyout "$pki/$1.key" 2>/dev/null |
    openssl x509 -req -CA "$pki/$2.crt" -CAkey "$pki/$2.key" -set_serial "0x$(openssl rand -hex 12)" -days 3650 \
      -extfile <(printf '%s\n' "$ext") -out "$pki/$1.crt" 2>/dev/null
}

# new_kubeconfig FILE CERT
new_kubeconfig() {
  cat >"$conf/$1" <<END
apiVersion: v1
kind: Config
clusters: [{name: castor-test, cluster: {server: "https://$node_ip:6443", certificate-authority: $pki/ca.crt}}]
users: [{name: me, user: {client-certificate: $pki/$2.crt, client-key: $pki/$2.key}}]
contexts: [{name: castor-test, context: {cluster: castor-test, user: me}}]
current-context: castor-test
END
}

certificates() {
  mkdir -p "$pki" "$conf"
  chmod 700 "$pki"
  new_ca ca castor-test-ca
  new_ca front-proxy-ca castor-test-front-proxy-ca
  openssl ecparam -name prime256v1 -genkey -noout -out "$pki/sa.key"
  openssl ec -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
  local names=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.$domain
  new_cert apiserver ca /CN=kube-apiserver "$names,DNS:localhost,IP:127.0.0.1,IP:$node_ip,IP:$api_service_ip"
  new_cert kubelet-server ca "/CN=$node_name" "DNS:$node_name,IP:$node_ip"
  new_cert apiserver-kubelet ca /O=system:masters/CN=kube-apiserver-kubelet-client
  new_cert front-proxy front-proxy-ca /CN=front-proxy-client
  new_cert admin ca /O=system:masters/CN=admin
  new_cert controllers ca /CN=system:kube-controller-manager
  new_cert scheduler ca /CN=system:kube-scheduler
  new_cert kubelet ca "/O=system:nodes/CN=system:node:$node_name"
  new_cert proxy ca /CN=system:kube-proxy
  new_cert coredns ca /CN=system:coredns
  local who
  for who in admin controllers scheduler kubelet proxy coredns; do new_kubeconfig "$who.kubeconfig" "$who"; done
}

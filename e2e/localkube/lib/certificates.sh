#!/bin/bash
# certificates.sh CLUSTER: its authorities, keys, certificates and kubeconfigs, in $STATE/CLUSTER/pki
set -euo pipefail
. "$(dirname "$0")/config.sh"
c=$1
mkdir -p "$STATE/$c/pki"
cd "$STATE/$c/pki"
umask 077
[ ! -e complete ] || exit 0

new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key" 2>/dev/null; }

authority() {
  new_key "$1"
  openssl req -x509 -new -key "$1.key" -days 3650 -subj "/CN=$1" -out "$1.crt" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
}

certificate() { # certificate NAME AUTHORITY SUBJECT [ALTERNATIVE_NAMES]
  new_key "$1"
  printf '%s\n' basicConstraints=CA:FALSE keyUsage=critical,digitalSignature extendedKeyUsage=serverAuth,clientAuth \
    ${4:+"subjectAltName=$4"} > "$1.ext"
  openssl req -new -key "$1.key" -subj "$3" |
    openssl x509 -req -CA "$2.crt" -CAkey "$2.key" -CAcreateserial -days 3650 -extfile "$1.ext" -out "$1.crt" 2>/dev/null
}

kubeconfig() { # kubeconfig USER SERVER FILE
  cat > "$3" <<K
apiVersion: v1
kind: Config
clusters: [{name: site-$c, cluster: {server: "https://$2", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
contexts: [{name: site-$c, context: {cluster: site-$c, user: $1}}]
current-context: site-$c
K
}

component() { # component NAME SUBJECT [ALTERNATIVE_NAMES]: a certificate and a kubeconfig for use in the cluster's network
  certificate "$1" ca "$2" "${3:-}"
  kubeconfig "$1" "$(api_address "$c")" "$1.kubeconfig"
}

authority ca
authority front-proxy-ca
openssl genrsa -out sa.key 2048 2>/dev/null
openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
service=DNS:kubernetes.default.svc
certificate apiserver ca /CN=kube-apiserver \
  "DNS:kubernetes,DNS:kubernetes.default,$service,$service.cluster.local,DNS:localhost,IP:127.0.0.1,IP:$(lan "$c").2,IP:$(services "$c").0.1"
certificate apiserver-kubelet ca "/O=system:masters/CN=kube-apiserver-kubelet-client"
certificate front-proxy front-proxy-ca /CN=front-proxy-client
component admin "/O=system:masters/CN=admin"
component controller-manager /CN=system:kube-controller-manager
component scheduler /CN=system:kube-scheduler
component proxy /CN=system:kube-proxy
for n in $(nodes "$c"); do
  component "node-$n" "/O=system:nodes/CN=system:node:$n" "DNS:$n,IP:$(node_address "$n"),IP:127.0.0.1"
done
# For people and tests on this machine, and for a pod of the other site (across the line).
kubeconfig admin "127.0.0.1:$(door_port "$c")" "$STATE/site-$c.kubeconfig"
kubeconfig admin "$(api_address "$c")" "$STATE/site-$c.internal.kubeconfig"
touch complete

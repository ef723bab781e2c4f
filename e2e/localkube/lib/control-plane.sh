#!/bin/bash
# control-plane.sh CLUSTER: pid 1 of a control plane, in namespaces of its own; starts again what dies.
set -euo pipefail
. "$(dirname "$0")/config.sh"
. "$LIB/supervise.sh"
c=$1 pki=$STATE/$1/pki ip=$(lan "$1").2 log=$STATE/$1/log
mkdir -p "$log"
cd "$STATE/$c"
hostname "cp-$c"
ulimit -n "$(ulimit -Hn)"

kubectl() { "$BIN/kubectl" --kubeconfig "$pki/admin.kubeconfig" "$@"; }

keep_chips() {
  # A kubelet that starts sets to zero every extended resource that no device plugin of its own has
  # registered. There are no devices here, so the nodes are watched and get their chips again each time.
  local n have want r
  # shellcheck disable=SC2016
  kubectl get nodes --watch -o 'go-template={{.metadata.name}}{{range $k, $v := .status.capacity}} {{$k}}={{$v}}{{end}}{{"\n"}}' |
    while read -r n have; do
      want=CHIPS_$n
      for r in $(tr , ' ' <<<"${!want:-}"); do
        case " $have " in *" $r "*) continue ;; esac
        kubectl patch node "$n" --subresource=status -p "{\"status\":{\"capacity\":{\"${r%=*}\":\"${r#*=}\"},\"allocatable\":{\"${r%=*}\":\"${r#*=}\"}}}"
      done
    done
}

# Not waiting for the disk: the machine may lose this data together with the clusters.
supervise etcd "$BIN/etcd" --name "$c" --data-dir "$STATE/$c/etcd" --unsafe-no-fsync --log-level warn \
  --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
  --initial-cluster "$c=http://127.0.0.1:2380" --auto-compaction-retention 1

supervise kube-apiserver "$BIN/kube-apiserver" --etcd-servers http://127.0.0.1:2379 \
  --bind-address 0.0.0.0 --advertise-address "$ip" --secure-port 6443 \
  --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" --client-ca-file "$pki/ca.crt" \
  --kubelet-client-certificate "$pki/apiserver-kubelet.crt" --kubelet-client-key "$pki/apiserver-kubelet.key" \
  --kubelet-certificate-authority "$pki/ca.crt" --kubelet-preferred-address-types InternalIP \
  --service-account-issuer https://kubernetes.default.svc.cluster.local \
  --service-account-key-file "$pki/sa.pub" --service-account-signing-key-file "$pki/sa.key" \
  --requestheader-client-ca-file "$pki/front-proxy-ca.crt" --requestheader-allowed-names front-proxy-client \
  --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
  --requestheader-extra-headers-prefix X-Remote-Extra- --enable-aggregator-routing \
  --proxy-client-cert-file "$pki/front-proxy.crt" --proxy-client-key-file "$pki/front-proxy.key" \
  --service-cluster-ip-range "$(services "$c").0.0/16" --authorization-mode Node,RBAC \
  --enable-admission-plugins NodeRestriction --allow-privileged --profiling=false

supervise kube-controller-manager "$BIN/kube-controller-manager" --kubeconfig "$pki/controller-manager.kubeconfig" \
  --authentication-kubeconfig "$pki/controller-manager.kubeconfig" --authorization-kubeconfig "$pki/controller-manager.kubeconfig" \
  --cert-dir "$STATE/$c/controller-manager" --leader-elect=false --use-service-account-credentials \
  --root-ca-file "$pki/ca.crt" --service-account-private-key-file "$pki/sa.key" \
  --cluster-signing-cert-file "$pki/ca.crt" --cluster-signing-key-file "$pki/ca.key" \
  --allocate-node-cidrs=false --cluster-cidr "$(pods "$c").0.0/16" --service-cluster-ip-range "$(services "$c").0.0/16" \
  --node-monitor-period 2s --node-monitor-grace-period "$NODE_GRACE"

supervise kube-scheduler "$BIN/kube-scheduler" --kubeconfig "$pki/scheduler.kubeconfig" \
  --authentication-kubeconfig "$pki/scheduler.kubeconfig" --authorization-kubeconfig "$pki/scheduler.kubeconfig" \
  --cert-dir "$STATE/$c/scheduler" --leader-elect=false

supervise keep-chips keep_chips
wait

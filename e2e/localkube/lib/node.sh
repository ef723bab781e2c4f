#!/bin/bash
# node.sh NODE: pid 1 of a node, in namespaces of its own; starts again what dies. Killing it is the node's
# power cut: the kernel ends everything inside and drops its mounts.
set -euo pipefail
. "$(dirname "$0")/config.sh"
. "$LIB/supervise.sh"
n=$1 c=$(cluster_of "$1") pki=$STATE/$(cluster_of "$1")/pki disk=$STATE/nodes/$1 log=$STATE/nodes/$1/log
hostname "$n"
ulimit -n "$(ulimit -Hn)"
mkdir -p "$log" "$disk"/{cni,etc,var/log,var/lib/kubelet,var/lib/containerd,var/lib/cni}

# The node's own view of the machine's files: /run, /var/log and /var/lib are its own, the rest is shared.
mount -t tmpfs tmpfs /run
mkdir -p /run/containerd /run/lock
for kept in "$STATE" "$PDD_CACHE"; do
  case $kept in /var/lib/*) mkdir -p "$disk/var/lib/${kept#/var/lib/}"; mount --rbind "$kept" "$disk/var/lib/${kept#/var/lib/}" ;; esac
done
mount --bind "$disk/var/log" /var/log
mount --rbind "$disk/var/lib" /var/lib
[ -e "$disk/etc/machine-id" ] || tr -d - < /proc/sys/kernel/random/uuid > "$disk/etc/machine-id"
[ ! -e /etc/machine-id ] || mount --bind "$disk/etc/machine-id" /etc/machine-id # nodes must differ in it
mount --make-rshared / # for mountPropagation; shared within this node only
rm -rf "$disk"/var/lib/cni/* # addresses of pods that a power cut has ended

cat > "$disk/cni/10-pods.conflist" <<C
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(pod_range "$n")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
C

cat > "$disk/etc/containerd.toml" <<C
version = 2
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$(own_image pause)"
  restrict_oom_score_adj = true # without CAP_SYS_RESOURCE no sandbox would start ("can't get final child's PID from pipe: EOF")
  disable_apparmor = true
  disable_hugetlb_controller = true
  enable_unprivileged_ports = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$disk/cni"
C

cat > "$disk/etc/kubelet.yaml" <<C
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$LK_PREFIX/$n
failCgroupV1: false          # the default is true from 1.35 on
failSwapOn: false
oomScoreAdj: 0               # the default, -999, needs CAP_SYS_RESOURCE
maxOpenFiles: $(ulimit -Hn)
makeIPTablesUtilChains: false
clusterDomain: cluster.local
clusterDNS: ["$(services "$c").0.10"]
resolvConf: ""
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $pki/node-$n.crt
tlsPrivateKeyFile: $pki/node-$n.key
evictionHard: {memory.available: "50Mi", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
imageGCHighThresholdPercent: 100 # off: there is no registry to pull an image from again
nodeStatusUpdateFrequency: 5s
nodeLeaseDurationSeconds: 20
shutdownGracePeriod: 0s
C

cat > "$disk/etc/kube-proxy.yaml" <<C
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: $n
clusterCIDR: $(pods "$c").0.0/16
detectLocalMode: ClusterCIDR
clientConnection: {kubeconfig: $pki/proxy.kubeconfig}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s} # not to be set within a network namespace
oomScoreAdj: 0
C

python3 "$LIB/images.py" mount "$disk/layers" /var/lib/containerd >> "$log/images.log" 2>&1
supervise containerd containerd --config "$disk/etc/containerd.toml"
for _ in $(seq 200); do ctr version >/dev/null 2>&1 && break; sleep 0.05; done
python3 "$LIB/images.py" give "$disk/layers" < "$STATE/images" >> "$log/images.log" 2>&1
supervise kubelet "$BIN/kubelet" --config "$disk/etc/kubelet.yaml" --kubeconfig "$pki/node-$n.kubeconfig" \
  --hostname-override "$n" --node-ip "$(node_address "$n")" --v 2
supervise kube-proxy "$BIN/kube-proxy" --config "$disk/etc/kube-proxy.yaml" --v 2
wait

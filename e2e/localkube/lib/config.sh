# Names, addresses and settings of the two clusters; read by every other script.
#
# Everything lives in network namespaces named $LK_PREFIX-*, control groups below $LK_PREFIX, and the
# directory $STATE. Two installations side by side need two prefixes and two pairs of ports:
# LK_PREFIX=try LK_PORT_a=17441 LK_PORT_b=17442. Their addresses may be the same: they never meet.
# shellcheck shell=bash disable=SC2034

LK_PREFIX=${LK_PREFIX:-pdd}
LK_NET=${LK_NET:-200}                    # uses 10.$LK_NET.0.0 to 10.$((LK_NET + 22)).255.255
PDD_CACHE=${PDD_CACHE:-/var/cache/pdd}   # outlives everything: programs and image layers
if [ "$LK_PREFIX" = pdd ]; then STATE=${PDD_STATE:-/var/lib/pdd-localkube}; else STATE=${PDD_STATE:-/var/lib/$LK_PREFIX-localkube}; fi
LIB=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
BIN=$STATE/bin                           # a link to what `build` made, set by `lk up`

CLUSTERS="a b"
NODES_a=${NODES_a:-"a1 a2"} NODES_b=${NODES_b:-"b1"}
LK_PORT_a=${LK_PORT_a:-16441} LK_PORT_b=${LK_PORT_b:-16442} # the API servers on 127.0.0.1
WAN=${WAN:-"rate=100mbit delay=10ms jitter=0ms loss=0% queue=0 priority=off"} # delay is one way
NODE_GRACE=${NODE_GRACE:-20s}            # silence after which a node is not Ready

# What the nodes are. Site a has chips for computing and a node without chips, site b chips with memory.
LABELS_a1=${LABELS_a1-"pdd.dev/pool=compute,pdd.dev/chip=chip-a"}
TAINTS_a1=${TAINTS_a1-"pdd.dev/chip=chip-a:NoSchedule"}
CHIPS_a1=${CHIPS_a1-"example.com/chip-a=4"}
LABELS_a2=${LABELS_a2-"pdd.dev/pool=general"}
LABELS_b1=${LABELS_b1-"pdd.dev/pool=memory,pdd.dev/chip=chip-b"}
TAINTS_b1=${TAINTS_b1-"pdd.dev/chip=chip-b:NoSchedule"}
CHIPS_b1=${CHIPS_b1-"example.com/chip-b=4"}

number() { case $1 in a) echo 1 ;; b) echo 2 ;; esac; }
nodes() { local list=NODES_$1; echo "${!list}"; }
all_nodes() { local c; for c in $CLUSTERS; do nodes "$c"; done; }
cluster_of() { echo "${1%%[0-9]*}"; }
index_of() { echo "${1//[!0-9]/}"; }
door_port() { local port=LK_PORT_$1; echo "${!port}"; }

lan() { echo "10.$((LK_NET + $(number "$1"))).0"; }       # .1 the switch, .2 the control plane, .10+i node i
pods() { echo "10.$((LK_NET + 10 + $(number "$1")))"; }   # node i has $(pods c).i.0/24
services() { echo "10.$((LK_NET + 20 + $(number "$1")))"; } # .0.1 the API server, .0.10 the DNS
line_address() { echo "10.$LK_NET.0.$(number "$1")"; }    # the two ends of the line
api_address() { echo "$(lan "$1").2:6443"; }
node_address() { echo "$(lan "$(cluster_of "$1")").$((10 + $(index_of "$1")))"; }
pod_range() { echo "$(pods "$(cluster_of "$1")").$(index_of "$1").0/24"; }

netns() { echo "/run/netns/$LK_PREFIX-$1"; }
# Not `ip netns exec`: that mounts /sys anew and hides the control groups.
in_netns() { local n=$1; shift; nsenter --net="$(netns "$n")" -- "$@"; }

own_image() { echo "localhost/pdd-$1:$(basename "$(readlink "$BIN")")"; } # made from a program of that name

say() { echo "lk: $*" >&2; }
fail() { say "$*"; exit 1; }

[[ $LK_PREFIX =~ ^[a-z0-9]+$ ]] || fail "LK_PREFIX=$LK_PREFIX: lower-case letters and digits only"

export LK_PREFIX LK_NET PDD_CACHE STATE NODES_a NODES_b

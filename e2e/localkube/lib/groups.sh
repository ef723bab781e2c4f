# Control groups: one for each part (a-cp, a1, wan, ...). They say which processes are ours: what is in a
# group below $LK_PREFIX was started by us or by something of ours, whatever became of its parent, and no
# number in a stale file can name a stranger. So stopping a part is killing its group.
# shellcheck shell=bash

if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  GROUP_HIERARCHIES=/sys/fs/cgroup
  GROUP_TREE=/sys/fs/cgroup
else # version 1: a tree for each controller; the one for the CPU is where processes are registered
  GROUP_HIERARCHIES=$(for h in /sys/fs/cgroup/*/; do [ ! -e "$h/cgroup.procs" ] || [ -L "${h%/}" ] || echo "${h%/}"; done)
  GROUP_TREE=/sys/fs/cgroup/cpu
fi

group_make() { # group_make NAME WEIGHT: in every hierarchy; a weight of 1 is that of one process outside
  local name=$LK_PREFIX/$1 weight=$2 h d f
  for h in $GROUP_HIERARCHIES; do
    mkdir -p "$h/$name/own" 2>/dev/null || continue
    for d in "$LK_PREFIX" "$name" "$name/own"; do
      for f in cpus mems; do # version 1 leaves these empty, and then no process may enter
        [ ! -e "$h/cpuset.$f" ] || cat "$h/cpuset.$f" > "$h/$d/cpuset.$f"
      done
    done
    for d in . "$LK_PREFIX" "$name"; do # version 2 hands controllers down one by one
      [ ! -e "$h/$d/cgroup.subtree_control" ] || for f in cpuset cpu io memory pids; do echo "+$f" > "$h/$d/cgroup.subtree_control" 2>/dev/null || true; done
    done
  done
  group_weight "$1" "$weight"
}

group_weight() { # group_weight NAME WEIGHT
  local d=$GROUP_TREE/$LK_PREFIX/$1
  if [ -e "$d/cpu.shares" ]; then echo $((1024 * $2)) > "$d/cpu.shares"; fi
  if [ -e "$d/cpu.weight" ]; then echo $((100 * $2)) > "$d/cpu.weight"; fi
}

# Its processes run before all others of the machine: for what must be on time and needs little. A kernel
# may refuse; then they have their weight, and are late when the machine is busy.
group_realtime() {
  local d p
  for d in "" "/$1" "/$1/own"; do # version 1 with scheduling of real-time groups: less than half of each second
    d=$GROUP_TREE/$LK_PREFIX$d
    [ ! -e "$d/cpu.rt_runtime_us" ] || echo 450000 > "$d/cpu.rt_runtime_us" 2>/dev/null || true
  done
  for p in $(group_pids "$1"); do chrt --all-tasks --rr --pid 1 "$p" 2>/dev/null || true; done
}

# The calling process goes into the group; its children follow. Into "own": in version 2 a group with
# groups below it (the kubelet makes some) may hold no processes itself.
group_enter() { echo "$BASHPID" > "$GROUP_TREE/$LK_PREFIX/$1/own/cgroup.procs"; }

group_pids() { # group_pids NAME: all processes in it and below
  [ ! -d "$GROUP_TREE/$LK_PREFIX/$1" ] || find "$GROUP_TREE/$LK_PREFIX/$1" -name cgroup.procs -exec cat {} + 2>/dev/null || true
}

group_alive() { [ -n "$(cat "$GROUP_TREE/$LK_PREFIX/$1/own/cgroup.procs" 2>/dev/null)" ]; }

group_init() { # group_init NAME: the process that is pid 1 of the part's own pid namespace
  local processes
  processes=$(cat "$GROUP_TREE/$LK_PREFIX/$1/own/cgroup.procs" 2>/dev/null) || return 0
  # Some may have ended by now, so a missing file is no error.
  # shellcheck disable=SC2046,SC2086
  awk '$1 == "Pid:" {p = $2} $1 == "NSpid:" && NF == 3 && $3 == 1 {print p; exit}' \
    $(printf '/proc/%s/status\n' $processes) 2>/dev/null || true
}

group_kill() { # group_kill NAME: at once, as a power cut would; then the groups go too
  local pids h
  for _ in $(seq 200); do
    pids=$(group_pids "$1")
    [ -n "$pids" ] || break
    # shellcheck disable=SC2086
    kill -KILL $pids 2>/dev/null || true
    sleep 0.05
  done
  [ -z "$pids" ] || fail "processes of $1 do not die: $pids"
  for h in $GROUP_HIERARCHIES; do
    [ ! -d "$h/$LK_PREFIX/$1" ] || find "$h/$LK_PREFIX/$1" -depth -type d -exec rmdir {} \; 2>/dev/null || true
  done
}

group_names() { local d; for d in "$GROUP_TREE/$LK_PREFIX"/*/; do [ ! -d "$d" ] || basename "$d"; done; }

groups_remove() { # all of them, and the one that holds them
  local g h
  for g in $(group_names); do group_kill "$g"; done
  for h in $GROUP_HIERARCHIES; do
    [ ! -d "$h/$LK_PREFIX" ] || find "$h/$LK_PREFIX" -depth -type d -exec rmdir {} \; 2>/dev/null || true
  done
}

# shellcheck shell=bash
supervise() { # supervise NAME COMMAND...: in the background, again and again; its output goes to $log/NAME.log
  local name=$1 status; shift
  while :; do
    status=0
    "$@" || status=$?
    echo "== $name left with $status, starting it again"
    sleep 1
  done >> "${log:?}/$name.log" 2>&1 &
}

# shellcheck shell=bash
supervise() { # supervise NAME COMMAND...: in the background, again and again; its output goes to $log/NAME.log
  local name=$1; shift
  while :; do
    "$@"
    echo "== $name left with $?, starting it again"
    sleep 1
  done >> "${log:?}/$name.log" 2>&1 &
}

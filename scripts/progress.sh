# shellcheck shell=bash
# Runs long steps quietly: their output goes to a log file, and one line on stderr shows the step and how long it has
# taken. On a terminal that line moves; elsewhere each step has a line at its begin and one at its end. When a step
# fails, the end of the log is shown. Source it, with STEP_LOG set to the file.

# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

STEP_LOG_LINES=30
step_job=""

# A step has its own process group, which ends with this script.
end_step() { [ -z "$step_job" ] || kill -- "-$step_job" 2>/dev/null || true; }
trap end_step EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# step NAME COMMAND [ARGUMENT...]: runs the command; its status is that of the step.
step() {
  local name=$1 begin=$SECONDS status=0
  shift
  printf '\n== %s: %s\n' "$name" "$*" >>"$STEP_LOG"
  [ -t 2 ] || say "$name ..."
  set -m
  (set -e && "$@") </dev/null >>"$STEP_LOG" 2>&1 &
  step_job=$!
  set +m
  [ ! -t 2 ] || draw_step "$name" "$begin"
  wait "$step_job" || status=$?
  step_job=""
  if [ $status -eq 0 ]; then
    step_done "$name" $((SECONDS - begin))
  else
    say "✗ $name failed after $(duration $((SECONDS - begin))). The end of $STEP_LOG:"
    tr '\r' '\n' <"$STEP_LOG" | grep -v '^ *Building \[' | tail -n $STEP_LOG_LINES >&2
  fi
  return $status
}

# The line of a finished step.
step_done() { printf '✓ %-24s %14s\n' "$1" "$(duration "$2")" >&2; }

draw_step() {
  local frames='|/-\' frame=0 line
  while kill -0 "$step_job" 2>/dev/null; do
    line="${frames:frame:1} $(printf '%-24s %14s' "$1" "$(duration $((SECONDS - $2)))")  $(step_count)"
    printf '\r\033[K%s' "${line:0:78}" >&2
    frame=$(((frame + 1) % 4))
    sleep 0.25
  done
  printf '\r\033[K' >&2
}

# How far cargo is, from its progress bar at the end of the log: `123 of 321 crates`.
step_count() {
  tail -c 2000 "$STEP_LOG" | tr '\r' '\n' | sed -n 's|^ *Building \[.*\] \([0-9]*\)/\([0-9]*\).*|\1 of \2 crates|p' | tail -n 1
}

# 125 as `2 min 5 s`.
duration() {
  if [ "$1" -lt 60 ]; then echo "$1 s"; else echo "$(($1 / 60)) min $(($1 % 60)) s"; fi
}

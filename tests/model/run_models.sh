#!/bin/sh
# Checks the Promela models: those that describe the code must hold in a
# complete search, each broken twin must be rejected.
#
#   run_models.sh [GROUP...]   stop_holds, stop_twins, chain, words, handshake
#                              (all of them by default), or large (minutes,
#                              2 GB)
#
# One line per run. Needs spin, gcc (spin's preprocessor) and a C compiler.
#
# shellcheck disable=SC2086  # switches are words
set -eu

models=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TEST_TMPDIR:-${TMPDIR:-/tmp}}/models.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

for tool in spin gcc "${CC:-cc}"; do
  if ! command -v "$tool" >/dev/null; then
    echo "run_models.sh: $tool is missing. Install it:" >&2
    echo "    apt-get install spin gcc" >&2
    exit 1
  fi
done

membarrier=
full="-DENTER_FENCED"                           # leaving unfenced
no_membarrier="-DENTER_FENCED -DLEAVE_FENCED"

runs=0
failures=0
memory=1500 # MB

fail() {
  failures=$((failures + 1))
  echo "FAIL  $*"
}

# check hold|reject HOW MODEL [SWITCH...]
# HOW: states (deadlocks are errors), watch (the model's own watch process says
# who may be asleep at the end), live (its LTL property, with weak fairness).
check() {
  expected=$1 how=$2 model=$3
  shift 3
  runs=$((runs + 1))
  what="$model${*:+ $*}"
  run=$work/$runs
  mkdir "$run"
  # spin writes into the current directory, and finds includes there.
  cp "$models"/*.pml "$run"
  case $how in
    states) safety=-DSAFETY flags= ;;
    watch) safety=-DSAFETY flags=-E ;;
    live) safety=-DNFAIR=3 flags='-a -f' ;;
  esac
  # A twin is rejected soon: compiling costs more than searching.
  case $expected in
    hold) optimize=-O1 ;;
    reject) optimize=-O0 ;;
  esac
  if ! (
    cd "$run"
    spin -a "$@" "$model.pml" >spin.log 2>&1 && [ -e pan.c ] &&
      "${CC:-cc}" "$optimize" -w $safety -DCOLLAPSE -DVECTORSZ=512 \
        -DMEMLIM="$memory" -o pan pan.c >cc.log 2>&1
  ); then
    fail "$what: does not compile"
    cat "$run"/*.log
    return
  fi
  start=$(date +%s)
  # pan ends with 0 whatever it finds.
  status=0
  (cd "$run" && ./pan $flags -m1000000 -w23) >"$run/pan.log" 2>&1 || status=$?
  seconds=$(($(date +%s) - start))
  log=$run/pan.log
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$log")
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$log")
  finding=$(sed -n 's/^pan:[0-9]*: //p' "$log" | head -n 1)
  counted="$states states, $seconds s"

  if [ "$status" != 0 ] || [ -z "$errors" ]; then
    fail "$what: pan broke down (status $status)"
    cat "$log"
  elif grep -Eq 'max search depth too small|MEMLIM|out of memory|hash table full' \
    "$log"; then
    fail "$what: not searched completely"
    cat "$log"
  elif [ "$errors" = 0 ]; then
    if grep -q 'Search not completed' "$log"; then
      fail "$what: not searched completely"
    elif [ "$expected" = hold ]; then
      echo "ok    $what: holds ($counted)"
    else
      fail "$what: a broken twin that holds ($counted)"
    fi
  else
    case $finding in
      'assertion violated'* | 'invalid end state'* | 'acceptance cycle'*) ;;
      *)
        fail "$what: pan says '$finding'"
        cat "$log"
        return
        ;;
    esac
    if [ "$expected" = reject ]; then
      echo "ok    $what: rejected, $finding ($counted)"
    else
      fail "$what: $finding ($counted). The counter-example:"
      (cd "$run" && spin -t -p "$@" "$model.pml" 2>&1 | grep 'proc ' |
        tail -n 150) || :
    fi
  fi
  rm -rf "$run"
}

stop_holds() {
  for mode in "$membarrier" "$full" "$no_membarrier"; do
    check hold watch stop -DN=1 -DSTOPS=3 $mode
    check hold watch stop -DN=2 -DSTOPS=1 -DSB=1 $mode
  done
}

stop_twins() {
  for twin in NO_ORDER_ALL NO_ORDER_BEFORE_SLEEP FENCE_BEFORE_SLEEP \
    NO_SLEEPER_FENCE SILENT_STEP_BACK POLL_WORD_ONLY BLIND_WAIT DISARM_LATE \
    NO_WAIT_IN_LEAVE LEAVE_LOOKS_FIRST LEAVE_WAITS_FOR_NONE IGNORE_CLOSED CLOSED_LATE; do
    check reject watch stop -DN=1 $membarrier -D$twin
  done
  # What the modes do differently. Membarrier hides DISARM_AFTER_WAIT and
  # LEAVE_UNFENCED; fenced leaving hides the former, and both of *_SLEEP.
  for twin in NO_ORDER_ALL NO_ORDER_BEFORE_SLEEP FENCE_BEFORE_SLEEP \
    NO_SLEEPER_FENCE SILENT_STEP_BACK DISARM_AFTER_WAIT LEAVE_UNFENCED \
    LEAVE_LOOKS_FIRST; do
    check reject watch stop -DN=1 $full -D$twin
  done
  for twin in NO_ORDER_ALL NO_LEAVE_FENCE LEAVE_UNFENCED LEAVE_LOOKS_FIRST; do
    check reject watch stop -DN=1 $no_membarrier -D$twin
  done
}

chain() {
  check hold watch chain
  check hold watch chain -DFIRST=2
  check hold watch chain -DFAN_OUT=1
  check hold watch chain -DFAN_OUT=1 -DANY_ORDER
  check hold live chain -DLIVE
  check hold live chain -DLIVE -DFAN_OUT=1
  for twin in NO_PASS PASS_ALWAYS ONLY_MUTATORS_PASS; do
    check reject watch chain -D$twin
  done
  check reject watch chain -DFAN_OUT=1 -DANY_ORDER -DNO_CLOSE_WAKE
  check reject live chain -DLIVE -DWAITS_FOR_NONE
  check reject live chain -DLIVE -DFAN_OUT=1 -DANY_ORDER
}

words() {
  check hold states wait_word
  for twin in SET_PLAIN TAKE_PLAIN TAKE_ALL SLEEP_UNSEEN SLEEP_ON_ANY; do
    check reject states wait_word -D$twin
  done
  check hold states join
  for twin in SET_OUTSIDE_LOCK NO_WAKE DONE_BEFORE_EVENT EVENT_IS_ENOUGH \
    CHECK_BEFORE_LOCK EVENT_IS_END STAY_IN_LIST NO_EVENT; do
    check reject states join -D$twin
  done
  check hold states mutex
  for twin in UNPARK_NOBODY REPARK_WOKEN TAKE_LEAVES_WOKEN PARK_BLIND \
    PARK_ON_FREE GIVE_UP_BLIND; do
    check reject states mutex -D$twin
  done
  check hold states queue
  for twin in SIGNAL_READ_LATE SLEEPS_READ_EARLY NO_SIGNAL CLOSED_FIRST \
    CLOSED_READ_LATE CLOSE_UNSIGNALLED OPEN_READ_EARLY FOLLOWERS_LAST \
    TOUCH_AFTER_RESULT SET_BEFORE_RESULT EVENT_IS_RESULT; do
    check reject states queue -D$twin
  done
  check hold states slots
  for twin in PIN_LOOKS_FIRST PIN_UNCHECKED RELEASE_UNCHECKED \
    UNPIN_UNCHECKED UNPIN_LEAVES_IT GENERATION_LATE RELEASE_IGNORES_PINS; do
    check reject states slots -D$twin
  done
  check hold states free_list
  check reject states free_list -DNO_TAG
  check hold states population
  for twin in CLOSING_READ_FIRST LOOK_THEN_CLOSE ADMIT_LOOKS_FIRST \
    REFUSED_SILENTLY; do
    check reject states population -D$twin
  done
  check hold states population -DSHUTDOWNS=2
  check reject states population -DSHUTDOWNS=2 -DWAKE_ONE
}

handshake() {
  for mode in "$membarrier" "$full" "$no_membarrier"; do
    check hold watch handshake -DR=1 -DASKS=2 $mode
    check hold watch handshake -DR=1 -DSUSPEND $mode
  done
  check hold watch handshake $no_membarrier
  check hold watch handshake -DSUSPEND $no_membarrier
  # In full the locked instruction that arms is x86's OrderAll already.
  for twin in NO_ORDER_ALL NO_SECOND_LOOK NO_CLAIM_CHECK CLAIM_UNQUEUED \
    PROXY_DISARMS DISARM_PLAIN FORGET_CAUSES NO_ORDER_BEFORE_SLEEP NO_WAITED \
    NO_LOOK_AFTER_LISTEN SETTLE_IN_TWO TELL_AFTER OWNER_ASLEEP NO_CLOSE \
    CLOSE_UNCLAIMED; do
    check reject watch handshake -D$twin
  done
  check reject watch handshake -DNO_NEXT $no_membarrier
  check reject watch handshake -DSUSPEND -DSUSPENDED_FIRST
  for mode in "$membarrier" "$no_membarrier"; do
    check hold live handshake -DLIVE -DR=1 $mode
    for twin in NO_TURN NO_TURN_BEFORE TURN_LATE; do
      check reject live handshake -DLIVE -DR=1 -D$twin $mode
    done
  done
}

large() {
  memory=4000
  for mode in "$membarrier" "$full" "$no_membarrier"; do
    check hold watch stop -DN=2 -DSTOPS=2 $mode
    check hold watch handshake $mode
  done
  check hold states slots -DPINNERS=3
}

[ $# -gt 0 ] || set -- stop_holds stop_twins chain words handshake
for group; do
  case $group in
    stop_holds | stop_twins | chain | words | handshake | large) $group ;;
    *)
      echo "run_models.sh: no group $group" >&2
      exit 1
      ;;
  esac
done
echo "$runs runs, $failures failures"
[ "$failures" = 0 ]

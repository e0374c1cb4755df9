#!/bin/bash
# Time to safepoint in HotSpot and Go, in one table.
#
#   bench/peers/run_peers.sh [SECONDS]     for each line, by default 5

set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
seconds=${1:-5}
interval_ms=5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# missing PEER PACKAGE
missing() { printf '%-9s not installed: apt-get install %s\n' "$1" "$2"; }

# row PEER WHAT "SAMPLES P50 P99 MAX NOTE"
row() {
  local samples p50 p99 max note
  read -r samples p50 p99 max note <<<"$3"
  # It would be the maximum under another name.
  [[ $samples != - ]] && ((samples < 100)) && p99=-
  printf '%-9s %-14s %8s %10s %10s %10s  %s\n' \
    "$1" "$2" "$samples" "$p50" "$p99" "$max" "$note"
}

hotspot() { # MODE COUNT
  local log=$work/safepoint.log
  rm -f "$log"
  java -cp "$work" -XX:+UnlockDiagnosticVMOptions -XX:+SafepointALot \
    -XX:GuaranteedSafepointInterval=$interval_ms \
    "-Xlog:safepoint=info:file=$log:uptime:filecount=0" \
    TtspPeer "$1" "$2" "$seconds" "$log" 2>"$work/errors" ||
    echo "- - - - failed: $(head -n 1 "$work/errors")"
}

find_go() {
  local candidate
  for candidate in go /usr/lib/go-1.*/bin/go; do
    if command -v "$candidate" >/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

echo "Each line $seconds s, a stop every $interval_ms ms, on $(nproc) cores;" \
  "load average $(cut -d ' ' -f 1-3 /proc/loadavg)."
echo 'HotSpot: "Reaching safepoint" of its log, Threads_lock included. Go: from'
echo 'the request of runtime.ReadMemStats until it is done. Microseconds.'
echo
printf '%-9s %-14s %8s %10s %10s %10s\n' \
  peer threads samples p50 p99 max

if command -v java >/dev/null && command -v javac >/dev/null; then
  javac -d "$work" "$here/TtspPeer.java"
  for count in 1 8 64; do
    row HotSpot "$count busy" "$(hotspot busy $count)"
  done
  row HotSpot '10000 parked' "$(hotspot parked 10000)"
  row HotSpot '4 starters' "$(hotspot storm 4)"
  version="HotSpot: $(java -version 2>&1 | sed -n 2p)"
else
  missing HotSpot openjdk-17-jdk-headless
fi

if go=$(find_go); then
  # A cache of its own: nothing is left behind, and HOME may be unset.
  GOCACHE=$work/cache GO111MODULE=off "$go" build -o "$work/ttsp" \
    "$here/ttsp.go"
  for count in 0 1 8 64; do
    row Go "$count busy" "$("$work/ttsp" busy $count "$seconds")"
  done
  row Go '10000 parked' "$("$work/ttsp" parked 10000 "$seconds")"
  version="${version:+$version
}Go:      $("$go" version)"
else
  missing Go golang-1.19-go
fi

[ -z "${version:-}" ] || printf '\n%s\n' "$version"

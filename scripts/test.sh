#!/usr/bin/env bash
# Runs the tests, with --fast those that take a few seconds each at most, with --soak those alone that repeat a fault many
# times or a training in several variants. The first argument is the Python to run them with.
#
# What depends on how soon something happens (marked "timed") runs one after the other. Most of its time it waits, so
# everything that needs no ROS 2 runs beside it at a lower priority, three at a time, since many of those wait, too. At
# the lowest priority it would stand still for as long as anything else on the machine has work to do.
set -uo pipefail
cd "$(dirname "$0")/.."
python="$1"
also=" and not soak"
case "${2:-}" in
    --fast) also=" and not soak and not slow" ;;
    --soak)
        "$python" -m pytest -n 2 --dist worksteal -m "soak and not ros"
        code=$?
        "$python" -m pytest -m "soak and ros" tests/ros || code=1
        exit "$code" ;;
esac

said="$(mktemp)"
rest=""
stop() {
    trap - INT TERM
    [ -n "$rest" ] && kill -INT "$rest" 2>/dev/null && wait "$rest"
    rm -f "$said"
    exit 130
}
trap stop INT TERM

failed=0
echo "Tests without ROS 2 run in the background and are shown afterwards."
set -m  # Without job control a shell's background processes ignore Ctrl-C.
nice -n 2 "$python" -m pytest -n 3 --dist worksteal -m "not ros$also" >"$said" 2>&1 &
rest=$!
set +m
# Tests over ROS 2 live in tests/ros; naming it spares loading all others. Nodes of one file share a domain.
"$python" -m pytest -m "timed$also" tests/ros || failed=1
"$python" -m pytest -n 2 --dist loadfile -m "ros and not timed$also" tests/ros || failed=1
tail -n +1 --pid "$rest" -f "$said"
wait "$rest" || failed=1
rm -f "$said"
exit "$failed"

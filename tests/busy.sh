# For script tests: `quick NAME COMMAND...` is `holds NAME COMMAND...` for a command that tests measured times. Where it fails
# and the machine is busy (more runs than it has cores, or a shell that only counts is kept waiting), the part is skipped,
# loudly. QUERN_TEST_BUSY=0 or 1 decides instead of looking. tests/quiet.h is the same for test programs.
machine_busy() {
    case "${QUERN_TEST_BUSY:-}" in
    0) return 1 ;;
    ?*)
        busy="QUERN_TEST_BUSY says so"
        return 0
        ;;
    esac
    cores=$(nproc 2>/dev/null || echo 1)
    load=$(cut -d' ' -f1 /proc/loadavg 2>/dev/null || echo 0)
    busy="a load of $load on $cores cores"
    awk "BEGIN { exit !($load > $cores + 0.5) }" && return 0
    busy="a process that only counts is kept waiting"
    python3 -c 'import sys, time
wall, own = time.monotonic(), time.process_time()
while time.monotonic() < wall + 0.1:
    pass
sys.exit((time.process_time() - own) / (time.monotonic() - wall) > 0.97)' 2>/dev/null
}
quick() {
    slow=$1
    shift
    if "$@" >/dev/null 2>&1; then holds "$slow" true; elif machine_busy; then
        echo "note: skipped: $slow: it does not hold, but the machine is busy ($busy)"
    else
        holds "$slow" "$@"
    fi
}

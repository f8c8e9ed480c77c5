#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one and no network: sets up from wheels, tests, benchmarks.
#
#   benchmarks/gpu_all.sh --wheels DIR [PART...]      parts: install about test sanitize bench accuracy
#
# Without a part: install, about, test, bench. A part goes on where it was cut, and ends by itself after LIMIT seconds
# (560): with 75 where there is more to do, so that it can be called until it ends with 0. Results lie in gpu-results/,
# and at the end of every call also in $OUT: about.txt, tests.log, sanitize.log, bench.log, gpu.json, gpu.md.
#
#   --wheels DIR    wheels of what the machine lacks, each with all it needs; --prefix DIR    where they go
#   RESULTS=DIR     in the place of gpu-results/
#   PYTHON=python3  the interpreter they are for; TORCH=$PYTHON    the one that has PyTorch
#   --again         forgets what earlier calls have done

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

python=${PYTHON:-python3} limit=${LIMIT:-560} again=75
results=${RESULTS:-$PWD/gpu-results} wheels='' prefix='' parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --wheels | --prefix)
        [ $# -gt 1 ] || { echo "$1 needs a folder" >&2; exit 2; }
        if [ "$1" = --wheels ]; then wheels=$2; else prefix=$2; fi
        shift 2
        ;;
    --again) rm -rf "$results" && shift ;;
    install | about | test | sanitize | bench | accuracy) parts+=("$1") && shift ;;
    *) sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(install about test bench)
prefix=${prefix:-$results/prefix}
mkdir -p "$results"
touch "$results/done.txt"

# What was there before is PyTorch's side's; ours sees the wheels first.
before=${LD_LIBRARY_PATH:-} path_before=${PYTHONPATH:-}
site=$prefix/lib/$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/site-packages
export PYTHONPATH=$PWD:$site${path_before:+:$path_before}
export PATH=$prefix/bin:$PATH
libraries() { # of the packages that are installed by now
    local found=$prefix/lib folder
    for folder in "$site"/nvidia/*/lib; do [ -d "$folder" ] && found=$found:$folder; done
    export LD_LIBRARY_PATH=$found${before:+:$before}
}
libraries
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONUNBUFFERED=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# shellcheck disable=SC2329 # the trap calls it
keep() { # results also to $OUT, whatever ended this
    if [ -n "${OUT:-}" ] && [ "$(realpath -m "$OUT")" != "$results" ]; then
        mkdir -p "$OUT"
        for file in "$results"/*.txt "$results"/*.log "$results"/gpu.*; do [ -f "$file" ] && cp "$file" "$OUT/"; done
    fi
}
trap keep EXIT

left() { echo $((limit - SECONDS)); }
is_done() { grep -qxF "$1" "$results/done.txt"; }
mark() { echo "$1" >>"$results/done.txt"; }
more() { # $1: what; there is not enough time for it in this call
    echo "$1: not enough time is left; call again" >&2
    exit "$again"
}

install() {
    [ -n "$wheels" ] || { echo "install: no --wheels, nothing to do"; return 0; }
    is_done install && return 0
    "$python" -m pip install --quiet --no-index --find-links "$wheels" --no-deps --ignore-installed --no-compile \
        --disable-pip-version-check --prefix "$prefix" "$wheels"/*.whl || return 1
    libraries
    mark install
}

about() {
    {
        date '+%Y-%m-%d %H:%M'
        nvidia-smi --query-gpu=name,driver_version,memory.total,pci.bus_id --format=csv,noheader
        nvidia-smi topo -m
        "$python" benchmarks/gpu_about.py
    } >"$results/about.txt" 2>&1
    local code=$?
    cat "$results/about.txt"
    return "$code"
}

ready() { # a GPU and all that is needed: tests that are skipped are not passed
    "$python" benchmarks/gpu_about.py >/dev/null || { echo "not ready: benchmarks/gpu_all.sh about says why" >&2; return 1; }
}

tests() { # one file after the other; what has passed is not run again
    local code=0 file
    ready || return 1
    for file in tests/gpu/test_*.py; do
        case $file in */test_sanitize.py | */test_opened.py) continue ;; esac # a part of its own; needs no GPU
        if is_done "$file"; then continue; fi
        [ "$(left)" -gt $((limit / 10)) ] || more "$file"
        timeout --signal=INT --kill-after=10 "$(left)" "$python" -m pytest -m gpu -rs --tb=short -p no:cacheprovider \
            "$file" 2>&1 | tee -a "$results/tests.log"
        case ${PIPESTATUS[0]} in
        0) mark "$file" ;;
        124 | 137) more "$file" ;;
        *) code=1 ;;
        esac
    done
    return "$code"
}

sanitize() {
    local code=0 tool
    ready || return 1
    for tool in memcheck racecheck; do
        if is_done "$tool"; then continue; fi
        [ "$(left)" -gt $((limit / 5)) ] || more "$tool"
        timeout --kill-after=10 "$(left)" compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 9 \
            "$python" -m pytest -m gpu -rs --tb=short tests/gpu/test_sanitize.py 2>&1 | tee -a "$results/sanitize.log"
        case ${PIPESTATUS[0]} in
        0) mark "$tool" ;;
        124 | 137) more "$tool" ;;
        *) code=1 ;;
        esac
    done
    return "$code"
}

bench() { # $@: more arguments
    local wrapped=$results/torch-python
    ready || return 1
    printf '#!/bin/sh\nPYTHONPATH=%q LD_LIBRARY_PATH=%q exec %q "$@"\n' \
        "$path_before" "$before" "${TORCH:-$python}" >"$wrapped"
    chmod +x "$wrapped"
    "$python" benchmarks/bench_gpu.py --resume --torch "$wrapped" --output "$results" --budget $(($(left) - 20)) "$@" \
        2>&1 | tee -a "$results/bench.log"
    local code=${PIPESTATUS[0]}
    if [ "$code" = 0 ] && grep -q '^## What was left out' "$results/gpu.md"; then more bench; fi
    return "$code"
}

worst=0
for part in "${parts[@]}"; do
    echo "== $part ($(left) s are left)"
    case $part in
    install) install ;;
    about) about ;;
    test) tests ;;
    sanitize) sanitize ;;
    bench) bench ;;
    accuracy) bench --only accuracy ;;
    esac || worst=$?
done
exit "$worst"

#!/usr/bin/env bash
# All that needs a GPU, step by step, on a machine that has one and no network. A step that fails ends no other.
#
#   benchmarks/gpu_all.sh [--bundle DIR] [STEP...]     steps: first (all up to pack), rest, or names of the table below
#
# Without a step: first, then rest. Every step has a time limit, its log is gpu-results/STEP.log, its exit code and
# seconds go to gpu-results/steps.tsv. A call ends after LIMIT seconds (560), with 75 where there is more to do, else
# with 1 where a step has failed: call it again, it goes on where it was cut. Then gpu-results/page.md says it all, and
# $OUT has a copy: steps.tsv, all.log, gpu.json, gpu.md, page.md and the caches.
#
#   --bundle DIR    what benchmarks/gpu/gpu_bundle.py made: wheels, caches, MNIST; --prefix DIR    where wheels go
#   --again         forgets what earlier calls have done
#   RESULTS=DIR     in the place of gpu-results/
#   STEP_LIMIT=S    seconds of a step at most, where the table allows more
#   PYTHON=python3  the interpreter that the wheels are for; TORCH=$PYTHON    the one that has PyTorch

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# Name, seconds at most, command. Up to pack plans are those that cuDNN ranks first (the cache `first`), and their
# figures lie apart; behind it they are timed.
first_steps() {
    cat <<'STEPS'
install      60 set -- "$bundle"/wheels/*.whl; [ ! -f "$1" ] || $python -m pip install --quiet --no-index --no-deps --ignore-installed --no-compile --disable-pip-version-check --prefix "$prefix" "$@"
versions     20 date '+%Y-%m-%d %H:%M'; nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; ldconfig -p | grep -E 'cudart|nvrtc'; $python -m benchmarks.gpu.gpu_about
nvrtc        20 $python -m benchmarks.gpu.gpu_smallest nvrtc
cudnn        20 $python -m benchmarks.gpu.gpu_smallest cudnn
nccl         20 $python -m benchmarks.gpu.gpu_smallest nccl
kinds        60 $python -m benchmarks.gpu.gpu_smallest kinds
tiny-plain   20 $tiny graphs=false
tiny-graphs  20 $tiny
tiny-fused   20 $tiny --learners 2 execution=fused
resnet32-1   90 $measure --item 'learners resnet32 16 tf32 streams 1'
torch        60 $measure --item 'search resnet32 tf32 16' 'search resnet32 tf32 256' 'search resnet32 tf32 512' 'search resnet32 tf32 1024'
streams-4    25 $measure --item 'learners resnet32 16 tf32 streams 4'
streams-8    25 $measure --item 'learners resnet32 16 tf32 streams 8'
streams-16   30 $measure --item 'learners resnet32 16 tf32 streams 16'
fused-8      60 $measure --item 'learners resnet32 16 tf32 fused 8'
ncu          60 ncu --graph-profiling node --metrics gpu__time_duration.sum --clock-control none $python -m benchmarks.gpu.gpu_profile resnet32 --once --batch-size 16 device=cuda precision=tf32
lenet-1      40 $measure --item 'learners lenet 8 tf32 streams 1'
lenet-16     30 $measure --item 'learners lenet 8 tf32 streams 16'
pack         30 tar -czf - -C "$results" first caches | split -b 15M - "$results/caches.tar.gz."
STEPS
}
rest_steps() {
    cat <<'STEPS'
test-kernels 400 $tests tests/gpu/test_device.py tests/gpu/test_own_kernels.py
test-layers  500 $tests tests/gpu/test_layers.py tests/gpu/test_models.py
test-runs    500 $tests tests/gpu/test_runs.py tests/gpu/test_data.py tests/gpu/test_ranks.py
bench        540 $bench --models resnet32 lenet --budget $((left - 15)); code=$?; if grep -q '^## What was left out' "$results/gpu.md"; then exit 75; fi; exit $code
resnet50     540 $bench --models resnet50 --budget $((left - 15)); code=$?; if grep -q '^## What was left out' "$results/gpu.md"; then exit 75; fi; exit $code
mnist        300 $bench --only accuracy --tasks lenet --seeds 1 --budget $((left - 15)) ${bundle:+--data "$bundle/data"}
memcheck     300 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 $python -m pytest -m gpu -rs --tb=short tests/gpu/test_sanitize.py
racecheck    300 compute-sanitizer --tool racecheck --report-api-errors no --error-exitcode 9 $python -m pytest -m gpu -rs --tb=short tests/gpu/test_sanitize.py
pack-all      30 rm -f "$results"/caches.tar.gz.*; tar -czf - -C "$results" first caches | split -b 15M - "$results/caches.tar.gz."
STEPS
}

python=${PYTHON:-python3} limit=${LIMIT:-560} again=75 wanted=()
results=$(realpath -m "${RESULTS:-gpu-results}") bundle='' prefix=''
while [ $# -gt 0 ]; do
    case $1 in
    --bundle | --prefix)
        [ $# -gt 1 ] || { echo "$1 needs a folder" >&2; exit 2; }
        if [ "$1" = --bundle ]; then bundle=$(realpath -m "$2"); else prefix=$2; fi
        shift 2
        ;;
    --again) rm -rf "$results" && shift ;;
    first | rest) wanted+=("$1") && shift ;;
    *)
        if { first_steps; rest_steps; } | grep "^$1 " >/dev/null && [ "${1#-}" = "$1" ]; then wanted+=("$1") && shift; continue; fi
        sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
    esac
done
[ ${#wanted[@]} -gt 0 ] || wanted=(first rest)
prefix=${prefix:-$results/prefix}
mkdir -p "$results/first" "$results/caches"
touch "$results/steps.tsv" "$results/passed.txt"
if [ -n "$bundle" ]; then
    for cache in first caches; do [ ! -d "$bundle/$cache" ] || cp -rn "$bundle/$cache/." "$results/$cache/"; done
fi

# What was there before is PyTorch's side's; ours sees the wheels first.
before=${LD_LIBRARY_PATH:-} path_before=${PYTHONPATH:-}
site=$prefix/lib/$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/site-packages
export PYTHONPATH=$PWD:$site${path_before:+:$path_before}
export PATH=$prefix/bin:$PATH
libraries() { # of the packages that are here by now
    local found=$prefix/lib folder
    while read -r folder; do
        for folder in "$folder"/*/lib; do [ -d "$folder" ] && found=$found:$folder; done
    done < <("$python" -c 'import nvidia; print(*nvidia.__path__, sep="\n")' 2>/dev/null)
    export LD_LIBRARY_PATH=$found${before:+:$before}
}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONUNBUFFERED=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

torch=$results/torch-python
printf '#!/bin/sh\nPYTHONPATH=%q LD_LIBRARY_PATH=%q exec %q "$@"\n' "$path_before" "$before" "${TORCH:-$python}" >"$torch"
chmod +x "$torch"
tiny="$python -m mpibow.bench train convnet --device cuda --seconds 1 --json"
bench="$python -m benchmarks.gpu.bench_gpu --resume --torch $torch --output $results"
measure="$python -m benchmarks.gpu.bench_gpu --resume --torch $torch --output $results/first"
# what has passed is not run again: benchmarks/gpu/gpu_marks.py
tests="$python -m pytest -p benchmarks.gpu.gpu_marks -n 6 -m gpu -rs --tb=short -p no:cacheprovider"
export python results bundle prefix tiny bench measure tests GPU_MARKS=$results/passed.txt

left() { echo $((limit - SECONDS)); }
code_of() { awk -F'\t' -v name="$1" '$1 == name {code = $2} END {print code}' "$results/steps.tsv"; }

keep() { # few files, each whole
    local file
    (cd "$results" && tail -n +1 ./*.log 2>/dev/null | tail -c 15000000 >all.txt)
    if [ -n "${OUT:-}" ] && [ "$(realpath -m "$OUT")" != "$results" ]; then
        mkdir -p "$OUT"
        cp "$results/all.txt" "$OUT/all.log"
        for file in "$results"/{steps.tsv,gpu.json,gpu.md,page.md} "$results"/caches.tar.gz.*; do
            [ -f "$file" ] && cp "$file" "$OUT/"
        done
        if [ ! -f "$results/gpu.json" ] && [ -f "$results/first/gpu.json" ]; then cp "$results/first/gpu.json" "$OUT/"; fi
    fi
}

run() { # $1: name, $2: seconds at most, $3: command, $4: cache
    local begin=$SECONDS most=$2 code
    code=$(code_of "$1")
    [ -z "$code" ] || [ "$code" = "$again" ] || return 0
    [ "$most" -le "${STEP_LIMIT:-$most}" ] || most=$STEP_LIMIT
    left=$(left)
    if [ "$left" -le 5 ]; then more=1 && return; fi
    [ "$left" -lt "$most" ] || left=$most
    export left
    echo "== $1 ($left s at most)"
    XDG_CACHE_HOME=$results/$4 timeout --signal=INT --kill-after=5 "$left" bash -c "$3" </dev/null >>"$results/$1.log" 2>&1
    code=$?
    case $code in 124 | 137) [ "$left" -ge "$most" ] || code=$again ;; esac # cut by the end of the call
    printf '%s\t%s\t%s\n' "$1" "$code" $((SECONDS - begin)) >>"$results/steps.tsv"
    [ "$code" = 0 ] || { echo "$1: ended with $code; the end of $results/$1.log:"; tail -n 5 "$results/$1.log"; }
    [ "$1" != install ] || libraries
    keep
}

libraries
more=0
table() { # $1: which; $2: cache
    local name most command
    while read -r name most command; do
        case " ${wanted[*]} " in
        *" $1 "* | *" $name "*) run "$name" "$most" "$command" "$2" ;;
        esac
        if [ "$(code_of "$name")" = "$again" ]; then more=1; fi
    done < <("${1}_steps")
}
table first first
table rest caches
timeout 60 "$python" -m benchmarks.gpu.gpu_page --results "$results" || echo "no page"
keep
failed=$(awk -F'\t' '{code[$1] = $2} END {for (name in code) if (code[name] != 0 && code[name] != 75) print name}' "$results/steps.tsv")
[ -z "$failed" ] || echo "failed: ${failed//$'\n'/ }"
if [ "$more" = 1 ]; then
    echo "not enough time is left: call again"
    exit "$again"
fi
[ -z "$failed" ]

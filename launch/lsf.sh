#!/bin/bash
# Trains on LSF; saves three minutes before the time is up, goes back into the queue, and continues there.
#
#   bsub < launch/lsf.sh
#
# Run it from the project's folder. Lines marked EDIT are the site's and the run's.

#BSUB -J mpibow
#BSUB -n 2
#BSUB -R "span[ptile=1] affinity[core(8)]"
#BSUB -W 4:00
#BSUB -wa USR1
#BSUB -wt 3
#BSUB -Q 75
#BSUB -r
#BSUB -o mpibow-%J.log
# EDIT -n: ranks; ptile: ranks on a node; core: at least as many as a rank has learners; -W: hours:minutes. With GPUs
# one rank for each, and for example: #BSUB -gpu num=1
# -wa, -wt: SIGUSR1, minutes before the end, asks the ranks to save. -Q: LSF queues the job again when it exits with 75.
# -r: also after a node has failed.

set -u
arguments=(launch/digits.yaml)   # EDIT: the file, and key=value ...

# module load openmpi            # EDIT: the site's MPI, the same one that mpi4py uses
# export PRTE_MCA_plm_ssh_agent=blaunch # EDIT: where nodes take no ssh; Open MPI 4: OMPI_MCA_plm_rsh_agent
export PATH="$PWD/.venv/bin:$PATH" # EDIT: where python finds mpibow

export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 # a learner is one thread
environment=(-x PATH -x OMP_NUM_THREADS -x OPENBLAS_NUM_THREADS) # for other nodes: ssh passes no variables on

# The same name each time, so that `--resume auto` finds what the job has saved.
run=("${arguments[@]}" "name=job-$LSB_JOBID")
train=(python -m mpibow.train "${run[@]}" --resume auto)

# SIGUSR1 makes all ranks save and exit with 75. SIGTERM (bkill, a pre-emption) becomes one, as mpirun would not pass it
# on, but kill the ranks.
step='' first='' signalled=''
# shellcheck disable=SC2329 # the traps call it
forward() { # $1: the signal
    first=${first:-$1} signalled=yes
    if [ -n "$step" ]; then kill -USR1 "$step" 2>/dev/null; fi
}
trap 'forward USR1' USR1
trap 'forward TERM' TERM INT # bkill sends SIGINT first

# A line for each rank. PyPI's Open MPI has no support for LSF: without the file all ranks would be on the first node.
hosts=${LSB_DJOB_HOSTFILE:-} made=''
if [ ! -s "$hosts" ]; then
    hosts=$(mktemp)
    made=$hosts
    trap 'rm -f "$made"' EXIT
    read -ra nodes <<< "${LSB_MCPU_HOSTS:?LSF names no hosts: run this by bsub < launch/lsf.sh}" # node1 2 node2 2
    for ((i = 0; i < ${#nodes[@]}; i += 2)); do
        for ((rank = 0; rank < nodes[i + 1]; rank++)); do echo "${nodes[i]}"; done
    done > "$hosts"
fi

# EDIT: STAGE=data/imagenet copies it to every node's own disk first, below STAGE_TO, and trains from there.
if [ -n "${STAGE:-}" ]; then
    scratch=${STAGE_TO:-/tmp}/mpibow-$LSB_JOBID
    each=(mpirun --hostfile "$hosts" --map-by ppr:1:node "${environment[@]}")
    trap '"${each[@]}" launch/stage.sh remove "$scratch"; rm -f ${made:+"$made"}' EXIT
    "${each[@]}" launch/stage.sh copy "$STAGE" "$scratch" || exit 1
    train+=("data.train=$scratch/train" "data.test=$scratch/test")
fi

# --bind-to none: Open MPI would put all learners of a rank on one core. Of a node that is
# once in the list of hosts mpirun would use every core.
slots=$(uniq -c "$hosts" | awk '{ printf "%s%s:%d", comma, $2, $1; comma = "," }') # node1:2,node2:2
mpirun -np "$LSB_DJOB_NUMPROC" --host "$slots" --bind-to none "${environment[@]}" "${train[@]}" &
step=$!
if [ -n "$first" ]; then kill -USR1 "$step" 2>/dev/null; fi # it came before there was a step

# Where a node is lost, the ranks of the others end with 8 (see `limits`), but mpirun would wait for ever.
watch() {
    local ranks="^[^ ]*python[^ ]* -m mpibow.train .*name=job-$LSB_JOBID --resume auto"
    until pgrep -f "$ranks"; do sleep 1; done
    while pgrep -f "$ranks"; do sleep 2; done
    sleep "${PATIENCE:-60}"
    kill -KILL "$step"
}
watch > /dev/null 2>&1 &
watcher=$!

# A signal cuts `wait` short with a code above 128; mpirun is still there then.
while true; do
    signalled=''
    wait "$step"
    code=$?
    if [ -z "$signalled" ] || [ "$code" -le 128 ]; then break; fi
done
kill "$watcher" 2>/dev/null

# A lost node or rank is worth another start: three times without a new checkpoint.
again=''
case $code in
    75 | 138) again=yes ;; # 138: the signal came before Python heard it
    5 | 8 | 137) if [ "$first" != TERM ] && python -m mpibow.again "$code" "${run[@]}"; then again=yes; fi ;;
esac

# Who kills a job does not want it back: any code but 75 keeps it out of the queue.
if [ -n "$again" ] && [ "$first" = TERM ]; then exit 143; fi
if [ -n "$again" ]; then
    echo "exit code $code: LSF queues job $LSB_JOBID again"
    exit 75
fi
exit "$code"

#!/bin/bash
# Trains on PBS Pro or OpenPBS; saves before the time is up, goes back into the queue, and continues there.
#
#   qsub launch/pbs.sh
#   qsub -v config=launch/lenet-mnist.yaml launch/pbs.sh
#
# Run it from the project's folder. Lines marked EDIT are the site's and the run's.

#PBS -N mpibow
#PBS -l select=2:ncpus=8:mpiprocs=1
#PBS -l walltime=04:00:00
#PBS -r y
#PBS -j oe
# EDIT the two -l lines. select: chunks; ncpus: at least as many as a rank has learners; mpiprocs: ranks in a chunk, one
# for each GPU (add :ngpus=1), without GPUs one for each node or socket. Two minutes before the walltime is over SIGUSR1
# asks the ranks to save.

set -u
cd "$PBS_O_WORKDIR" || exit 1
config=${config:-launch/digits.yaml}
arguments=("$config")            # EDIT: and key=value ...

# module load openmpi            # EDIT: the site's MPI, the same one that mpi4py uses
export PATH="$PWD/.venv/bin:$PATH" # EDIT: where python finds mpibow

export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 # a learner is one thread
environment=(-x PATH -x OMP_NUM_THREADS -x OPENBLAS_NUM_THREADS) # for other nodes: ssh passes no variables on

# The same name each time, so that `--resume auto` finds what the job has saved; a resubmitted job is given it.
name=${run:-job-${PBS_JOBID%%.*}}
name=${name//[^A-Za-z0-9._-]/-}
run=("${arguments[@]}" "name=$name")
train=(python -m mpibow.train "${run[@]}" --resume auto)

# SIGUSR1 makes all ranks save and exit with 75. SIGTERM (qdel, a pre-emption) becomes one, as mpirun would not pass it
# on, but kill the ranks; PBS leaves kill_delay seconds after it. Who deletes a job does not want it back.
step='' first='' signalled=''
# shellcheck disable=SC2329 # the traps call it
forward() { # $1: the signal
    first=${first:-$1} signalled=yes
    if [ -n "$step" ]; then kill -USR1 "$step" 2>/dev/null; fi
}
trap 'forward USR1' USR1
trap 'forward TERM' TERM

# The walltime that the job really has, as PBS prints it: 04:00:00.
IFS=: read -r h m s < <(qstat -f "$PBS_JOBID" 2>/dev/null | sed -n 's/^ *Resource_List.walltime = //p')
if [ -n "${s:-}" ]; then
    walltime=$((10#$h * 3600 + 10#$m * 60 + 10#$s))
    seconds=$((walltime > 240 ? walltime - 120 : walltime / 2))
else
    seconds=999999999
    echo "no walltime found by qstat -f $PBS_JOBID: nothing asks the ranks to save before the time is up" >&2
fi

# EDIT: STAGE=data/imagenet copies it to every node's own disk first, below STAGE_TO, and trains from there.
if [ -n "${STAGE:-}" ]; then
    scratch=${STAGE_TO:-/tmp}/mpibow-$name
    each=(mpirun --hostfile "$PBS_NODEFILE" --map-by ppr:1:node "${environment[@]}")
    # shellcheck disable=SC2329 # the trap calls it
    remove() { "${each[@]}" launch/stage.sh remove "$scratch"; }
    trap remove EXIT
    "${each[@]}" launch/stage.sh copy "$STAGE" "$scratch" || exit 1
    train+=("data.train=$scratch/train" "data.test=$scratch/test")
fi

# The list has a line for each rank; of a node that is there once mpirun would use every core. `timeout` sends SIGUSR1
# when the time is nearly up, and kills an mpirun that does not end then. --bind-to none: Open MPI would put all
# learners of a rank on one core.
ranks=$(grep -c . "$PBS_NODEFILE")
left=$((seconds - SECONDS)) # data have been copied meanwhile
slots=$(uniq -c "$PBS_NODEFILE" | awk '{ printf "%s%s:%d", comma, $2, $1; comma = "," }') # node1:2,node2:2
timeout --foreground --preserve-status --kill-after=90 --signal=USR1 $((left > 1 ? left : 1)) \
    mpirun -np "$ranks" --host "$slots" --bind-to none "${environment[@]}" "${train[@]}" &
step=$!
if [ -n "$first" ]; then kill -USR1 "$step" 2>/dev/null; fi # it came before there was a step

# Where a node is lost, the ranks of the others end with 8 (see `limits`), but mpirun would wait for ever.
watch() {
    local ranks="^[^ ]*python[^ ]* -m mpibow.train .*name=$name --resume auto"
    until pgrep -f "$ranks"; do sleep 1; done
    while pgrep -f "$ranks"; do sleep 2; done
    sleep "${PATIENCE:-60}"
    pkill -KILL -P "$step"
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
    5 | 8 | 137) if python -m mpibow.again "$code" "${run[@]}"; then again=yes; fi ;;
esac

# qrerun is often the operators' only; then a new job takes the run over.
job=config=$config,run=$name${STAGE:+,STAGE=$STAGE}${STAGE_TO:+,STAGE_TO=$STAGE_TO}
if [ -n "$again" ] && { [ "$first" != TERM ] || [ "$SECONDS" -ge "$seconds" ]; }; then
    if [ -n "${STAGE:-}" ]; then trap - EXIT; remove; fi # while the nodes are still the job's
    if qrerun "$PBS_JOBID" 2>/dev/null; then
        echo "exit code $code: job $PBS_JOBID goes back into the queue"
    elif qsub -v "$job" launch/pbs.sh; then
        echo "exit code $code: the job above continues $name"
    else
        echo "exit code $code, and not queued again; by hand: qsub -v $job launch/pbs.sh" >&2
    fi
fi
exit "$code"

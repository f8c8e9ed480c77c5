#!/bin/bash
# Trains with several seeds as a job array of Slurm, PBS or LSF: a task for each seed, and one table of all.
#
#   sbatch launch/seeds.sh CONFIG.yaml [key=values ...]
#   qsub launch/seeds.sh                                  the config stands in the line `arguments=`
#   bsub < launch/seeds.sh                                likewise
#   mpibow sweep --output sweeps/seeds-JOB --table        afterwards, or in between
#
# Run it from the project's folder. Lines marked EDIT are the site's and the run's. A task saves before its time is up,
# goes back into the queue, and continues there. To submit an array again, name its folder: output=sweeps/seeds-JOB.

# EDIT for Slurm: the seeds, at most four at a time; cores of a run; time
#SBATCH --job-name=mpibow
#SBATCH --array=1-9%4
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append
#SBATCH --output=mpibow-%A-%a.log
# EDIT for PBS Pro or OpenPBS
#PBS -N mpibow
#PBS -J 1-9
#PBS -l select=1:ncpus=8:mpiprocs=1
#PBS -l walltime=04:00:00
#PBS -r y
#PBS -j oe
# EDIT for LSF
#BSUB -J "mpibow[1-9]%4"
#BSUB -n 1
#BSUB -R "span[hosts=1] affinity[core(8)]"
#BSUB -W 4:00
#BSUB -wa USR1
#BSUB -wt 3
#BSUB -Q 75
#BSUB -r
#BSUB -o mpibow-%J-%I.log

set -u
cd "${PBS_O_WORKDIR:-$PWD}" || exit 1
arguments=("${@:-launch/digits.yaml}") # EDIT on PBS and LSF: (CONFIG.yaml update.lr=0.01,0.02)
ranks=${ranks:-1}                  # EDIT: of each run, all on one node; on Slurm --ntasks as many

# module load openmpi            # EDIT: the site's MPI, the same one that mpi4py uses
export PATH="$PWD/.venv/bin:$PATH" # EDIT: where python finds mpibow

export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 # a learner is one thread
# Open MPI would put all learners of a rank on one core.
export PRTE_MCA_hwloc_default_binding_policy=none OMPI_MCA_hwloc_base_binding_policy=none

limit=() again=()
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    job=$SLURM_ARRAY_JOB_ID seed=$SLURM_ARRAY_TASK_ID
    again=(scontrol requeue "${job}_$seed")
elif [ -n "${PBS_ARRAY_INDEX:-}" ]; then
    job=${PBS_JOBID%%[*} seed=$PBS_ARRAY_INDEX
    again=(qrerun "$PBS_JOBID")
    # PBS gives no early signal: `timeout` asks for the state two minutes before the walltime is over.
    IFS=: read -r h m s < <(qstat -f "$PBS_JOBID" 2>/dev/null | sed -n 's/^ *Resource_List.walltime = //p')
    if [ -n "${s:-}" ]; then
        walltime=$((10#$h * 3600 + 10#$m * 60 + 10#$s))
        limit=(timeout --foreground --preserve-status --kill-after=90 --signal=TERM $((walltime > 240 ? walltime - 120 : walltime / 2)))
    fi
elif [ "${LSB_JOBINDEX:-0}" -gt 0 ]; then
    job=$LSB_JOBID seed=$LSB_JOBINDEX # LSF itself queues a task again that exits with 75
else
    echo "no job array: the scheduler has set no index; submit with --array, -J 1-9 or -J \"mpibow[1-9]\"" >&2
    exit 2
fi
output=${output:-sweeps/seeds-$job}

# SIGTERM makes the sweep have its run save, and exit with 75; a second one would kill the run.
step='' first='' signalled=''
# shellcheck disable=SC2329 # the traps call it
forward() { # $1: the signal
    if [ -n "$step" ] && [ -z "$first" ]; then kill -TERM "$step" 2>/dev/null; fi
    first=${first:-$1} signalled=yes
}
trap 'forward USR1' USR1
trap 'forward TERM' TERM

${limit[@]+"${limit[@]}"} python -m mpibow.sweep "${arguments[@]}" "seed=$seed" --output "$output" --ranks "$ranks" &
step=$!
if [ -n "$first" ]; then kill -TERM "$step" 2>/dev/null; fi # it came before there was a step

# A signal cuts `wait` short with a code above 128; the sweep is still there then.
while true; do
    signalled=''
    wait "$step"
    code=$?
    if [ -z "$signalled" ] || [ "$code" -le 128 ]; then break; fi
done

if [ "$code" = 143 ] && [ -n "$first" ]; then code=75; fi # the signal came before Python heard it

# 5, 8, 137: a lost rank is worth another start; the sweep gives these codes three times without a new checkpoint.
case $code in
    75 | 5 | 8 | 137)
        if [ "$first" = TERM ]; then exit 143; fi # who cancels a task does not want it back
        if [ "${#again[@]}" -eq 0 ] || "${again[@]}"; then
            echo "exit code $code: seed $seed goes back into the queue"
        else
            echo "exit code $code: seed $seed is not queued again; submit the array with output=$output" >&2
        fi
        if [ "${#again[@]}" -eq 0 ]; then exit 75; fi
        ;;
esac
exit "$code"

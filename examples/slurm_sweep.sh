#!/bin/bash
# A sweep as an array of jobs, each with its part of the runs:
#
#     sbatch --array=1-8 slurm_sweep.sh config.yaml --over KEY=VALUES
#
# All jobs write into one folder; a job that is stopped with a checkpoint puts itself into the queue again, and the last
# that ends leaves the whole table. Array numbers begin with 1. Set cores and GPUs to your cluster's.

#SBATCH --job-name=tetris-sim-sweep
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%A_%a.out

config=${1:?"usage: sbatch --array=1-N slurm_sweep.sh CONFIG --over KEY=VALUES [options of sweep]"}
shift

# Since Slurm 22.05 srun does not take this over from the job by itself.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

srun tetris-sim sweep "$config" --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" "$@"
code=$?

if [ "$code" -eq 75 ]; then
    echo "stopped with a checkpoint: job $SLURM_JOB_ID goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
fi
exit "$code"

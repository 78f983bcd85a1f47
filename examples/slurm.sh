#!/bin/bash
# A job that puts itself into the queue again until the run is done:
#
#     sbatch slurm.sh config.yaml
#
# tetris-sim ends with exit code 75 when it was stopped by a signal or before the end of the job, with a good checkpoint,
# and with another one when it is done or when trying again would not help: also when two jobs in a row were stopped without
# a single step, because the limit of time is shorter than planning takes. Set nodes, cores and GPUs to your cluster's.

#SBATCH --job-name=tetris-sim
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out

config=${1:?"usage: sbatch slurm.sh CONFIG [options of run]"}
shift

# Since Slurm 22.05 srun does not take this over from the job by itself.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

# One rank per computer owns all of its cores and GPUs. If one is lost the others must not wait for it.
srun --kill-on-bad-exit=1 tetris-sim run "$config" --resume auto "$@"
code=$?

if [ "$code" -eq 75 ]; then
    echo "stopped with a checkpoint: job $SLURM_JOB_ID goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
fi
exit "$code"

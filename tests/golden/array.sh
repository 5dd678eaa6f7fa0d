#!/bin/bash
# scalewise: 3 runs of vit, a task of this array for each
#SBATCH --array=0-2%2
#SBATCH --job-name=vit-2x4
#SBATCH --chdir=/shared/project
#SBATCH --output=/shared/runs/vit/vit-2x4.txt
#SBATCH --open-mode=append
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:4
#SBATCH --time=00:30:00
#SBATCH --account=ehpc01
#SBATCH --qos=acc_debug
#SBATCH --no-requeue
set -u

homes=(
    /shared/runs/vit/10db1058782f
    /shared/runs/vit/10db1058782f
    /shared/runs/vit/10db1058782f
)

home=${homes[SLURM_ARRAY_TASK_ID]}
exec bash "$home/plan/job.sh" >>"$home/log.txt" 2>&1

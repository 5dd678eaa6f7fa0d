#!/bin/bash
# scalewise: 3 runs of vit, one after another in one allocation
#SBATCH --job-name=vit
#SBATCH --chdir=/shared/project
#SBATCH --output=/shared/runs/vit/in-turn.txt
#SBATCH --open-mode=append
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:4
#SBATCH --time=00:30:00
#SBATCH --account=ehpc01
#SBATCH --qos=acc_debug
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
set -u

echo "scalewise: job $SLURM_JOB_ID begins"

homes=(
    /shared/runs/vit/f31b8835e3c7
    /shared/runs/vit/e7e85e3db86e
    /shared/runs/vit/06281cdda671
)

devices=(1 4 8)

# Pass a warning on to the active run, and start no other run after it.
run='' warned=''
trap 'warned=yes; kill -USR1 "$run" 2>/dev/null' USR1 TERM

for index in "${!homes[@]}"; do
    home=${homes[index]} began=$(date +%s.%N)
    bash "$home/plan/job.sh" >>"$home/log.txt" 2>&1 &
    run=$!
    wait "$run"
    while kill -0 "$run" 2>/dev/null; do wait "$run"; done
    # Record the time for the bill, which includes devices that this run left idle.
    printf '{"job":"%s","run":"%s","devices":%s,"of":%s,"began":%s,"ended":%s}\n' \
        "$SLURM_JOB_ID" "${home##*/}" "${devices[index]}" "$((SLURM_JOB_NUM_NODES * 4))" \
        "$began" "$(date +%s.%N)" >>/shared/runs/vit/allocation.jsonl
    [ -z "$warned" ] || break
done

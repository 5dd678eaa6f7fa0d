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

homes=(
    /shared/runs/vit/f31b8835e3c7
    /shared/runs/vit/e7e85e3db86e
    /shared/runs/vit/06281cdda671
)

devices=(1 4 8)

# A warning is for the run that is under way, and then no other one starts.
run='' warned=''
trap 'warned=yes; kill -USR1 "$run" 2>/dev/null' USR1 TERM

for place in "${!homes[@]}"; do
    home=${homes[place]} began=$(date +%s.%N)
    bash "$home/plan/job.sh" >>"$home/log.txt" 2>&1 &
    run=$!
    wait "$run"
    while kill -0 "$run" 2>/dev/null; do wait "$run"; done
    # Devices that this run left idle are paid for: keep them in mind.
    printf '{"job":"%s","run":"%s","devices":%s,"of":%s,"began":%s,"ended":%s}\n' \
        "$SLURM_JOB_ID" "${home##*/}" "${devices[place]}" "$((SLURM_JOB_NUM_NODES * 4))" \
        "$began" "$(date +%s.%N)" >>/shared/runs/vit/allocation.jsonl
    [ -z "$warned" ] || break
done

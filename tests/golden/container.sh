#!/bin/bash
# scalewise: run 06281cdda671 (vit on 2x4, repeat 1)
#SBATCH --job-name=vit-2x4
#SBATCH --chdir=/shared/project
#SBATCH --output=/shared/runs/vit/06281cdda671/log.txt
#SBATCH --open-mode=append
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=80
#SBATCH --gres=gpu:4
#SBATCH --time=00:30:00
#SBATCH --account=ehpc01
#SBATCH --qos=acc_debug
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
set -u

module load singularity

# The ranks rendezvous on the first node, at a port derived from the job's id.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT
export NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0

# srun does not pass --cpus-per-task on by itself.
export SRUN_CPUS_PER_TASK=80
export OMP_NUM_THREADS=1
export SCALEWISE_RUN=/shared/runs/vit/06281cdda671
export SCALEWISE_PATIENCE=300
export SCALEWISE_UNWATCHED=1
export PYTHONSAFEPATH=1
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
export PYTHONPATH=/shared/runs/vit/worker.zip${PYTHONPATH:+:$PYTHONPATH}
export SCALEWISE_FIRST=1 SCALEWISE_ATTEMPT=$((1 + ${SLURM_RESTART_COUNT:-0} * 3))
SCALEWISE_LAUNCHED=$(date +%s.%N)
export SCALEWISE_LAUNCHED
# Do not train a finished run again if this script was submitted twice. A script of
# `scalewise run --again` has a higher attempt number.
finished=$(sed -n 's/.*"attempt": \([0-9]*\).*/\1/p' "$SCALEWISE_RUN/outcome.json" 2>/dev/null)
if [ "${finished:-0}" -ge "$SCALEWISE_FIRST" ]; then
    echo "this run is finished already"
    exit 0
fi
# Only one job at a time may train the run: the one that can create this link to its id.
holder="$SCALEWISE_RUN/holder"
until ln -sn "$SLURM_JOB_ID" "$holder" 2>/dev/null; do
    other=$(readlink "$holder" || cat "$holder")
    [ "$other" != "$SLURM_JOB_ID" ] || break  # This job was requeued.
    if squeue --noheader --jobs="$other" --states=RUNNING 2>/dev/null | grep -q .; then
        echo "job $other trains this run already"
        exit 1
    fi
    # That job has ended. Of the jobs that may follow it, one can create the next link.
    holder="$SCALEWISE_RUN/holder-after-$other"
done
# A job that was submitted by hand has no job.json yet: scalewise status needs it.
job="${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}"
[ -e "$SCALEWISE_RUN/job.json" ] ||
    printf '{"schema": 1, "attempt": 1, "world": 8, "launcher": "slurm", "log": 0, "job": "%s"}\n' "${job:-$SLURM_JOB_ID}" >"$SCALEWISE_RUN/job.json"
echo "scalewise: attempt $SCALEWISE_ATTEMPT on $SLURM_JOB_NODELIST"

leave="$SCALEWISE_RUN/leave"
rm -f "$leave"
# Shortly before the time limit, or on SIGTERM, create the file that makes ranks stop.
trap 'touch "$leave"' USR1 TERM

# One more process on each node samples how busy the node is.
srun --overlap --nodes=2 --ntasks=2 --cpus-per-task=1 singularity exec --nv --bind /shared --bind /data:/data /shared/torch.sif python3 -m scalewise.probe.node_sampler "$SCALEWISE_RUN" 1 >/dev/null 2>&1 &
sampler=$!
srun --kill-on-bad-exit=1 \
    singularity exec --nv --bind /shared --bind /data:/data /shared/torch.sif \
    python3 -m torch.distributed.run --nnodes=2 --nproc-per-node=4 --max-restarts=2 \
        --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --rdzv-id="$SLURM_JOB_ID" \
    -m scalewise.frameworks train /shared/runs/vit/06281cdda671 &
ranks=$!
wait "$ranks"; code=$?
# A signal interrupts the wait but does not end the ranks: wait again.
while [ "$code" -gt 128 ] && kill -0 "$ranks" 2>/dev/null
do wait "$ranks"; code=$?; done
kill "$sampler" 2>/dev/null; wait "$sampler"
# If the ranks stopped early with a checkpoint, requeue the job to continue from it.
if tail -n 1 "$SCALEWISE_RUN/rank-00000.jsonl" 2>/dev/null | grep -q '"left":'
then
    scontrol requeue "$SLURM_JOB_ID" && exit 0
fi
# Write how the run ended: outcome.json, or the cause of its failure.
singularity exec --nv --bind /shared --bind /data:/data /shared/torch.sif python3 -m scalewise.frameworks close "$SCALEWISE_RUN"
exit "$code"

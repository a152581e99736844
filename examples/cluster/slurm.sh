#!/usr/bin/env bash
# A sweep over the machines of a Slurm cluster: an array job with a shard in each task, and a job that
# merges when all of them have ended; it says which runs are missing if one was ended. On the login node:
#
#   examples/cluster/slurm.sh examples/sweep.toml /data/results 16
#
# The directory is on a file system that all machines see. The same command goes on with what is there.
set -euo pipefail

[ $# -eq 3 ] || { echo "usage: $0 SCENARIO DIRECTORY TASKS" >&2; exit 2; }
scenario=$(realpath "$1")
mkdir -p "$2"
results=$(realpath "$2")
tasks=$3

# %q quotes the names for the shell that Slurm starts; the variables are for that shell, too.
# shellcheck disable=SC2016
shard=$(printf 'segue sim sweep %q --out %q --jobs "$SLURM_CPUS_PER_TASK" --shard "$SLURM_ARRAY_TASK_ID/%d"' \
  "$scenario" "$results" "$tasks")
merge=$(printf 'segue sim merge %q %q' "$results" "$results")

array=$(sbatch --parsable --job-name=sweep --array="1-$tasks" --cpus-per-task=4 \
  --output="$results/shard-%a.log" --wrap="$shard")
# With a federation of clusters sbatch says NUMBER;CLUSTER.
sbatch --job-name=sweep-merge --dependency="afterany:${array%%;*}" \
  --output="$results/merge.log" --wrap="$merge"

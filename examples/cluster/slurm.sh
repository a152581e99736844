#!/usr/bin/env bash
# A sweep over the machines of a Slurm cluster: an array job with a shard in each task, and a job that
# merges when all tasks have ended. If a task was stopped, the merge lists the missing runs. On the login node:
#
#   examples/cluster/slurm.sh examples/sweep.toml /data/results 16
#
# The directory is on a file system that all machines share. The same command continues an unfinished sweep.
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
# In a federation of clusters sbatch prints NUMBER;CLUSTER.
sbatch --job-name=sweep-merge --dependency="afterany:${array%%;*}" \
  --output="$results/merge.log" --wrap="$merge"

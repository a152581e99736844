#!/usr/bin/env python3
"""A sweep over the machines of a Ray cluster: a shard in each task, then the merge.

    python3 examples/cluster/ray_sweep.py examples/sweep.toml /data/results --shards 16

Every machine needs the segue binary, and the directory must be on a file system that all of them share. The
same command continues an unfinished sweep.
"""

import argparse
import subprocess
import sys
from pathlib import Path


def shard_command(scenario, results, shard, shards):
    """The command of one shard, counted from 1."""
    return [
        "segue", "sim", "sweep", str(scenario),
        "--out", str(results), "--jobs", "1", "--shard", f"{shard}/{shards}",
    ]


def run(command):
    """Exit status and messages of a command; status 1 means that some runs of a sweep failed."""
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stderr


def main():
    parser = argparse.ArgumentParser(description="A sweep over the machines of a Ray cluster.")
    parser.add_argument("scenario", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--shards", type=int, default=16)
    args = parser.parse_args()
    scenario, results = args.scenario.resolve(), args.results.resolve()

    import ray  # here, so that --help needs no Ray

    ray.init()
    task = ray.remote(num_cpus=1)(run)
    commands = [shard_command(scenario, results, i + 1, args.shards) for i in range(args.shards)]
    for status, messages in ray.get([task.remote(command) for command in commands]):
        if status > 1:
            sys.exit(messages.strip())
    status, messages = run(["segue", "sim", "merge", str(results), str(results)])
    sys.stderr.write(messages)
    return status


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/python3
"""Runs the training step's benchmark and its PyTorch counterpart in turns; prints medians and the ratio."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys


def seconds_of_zeroplan(program):
    run = subprocess.run([program, "--benchmark_filter=^gpt2_step", "--benchmark_format=json"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    return json.loads(run.stdout)["benchmarks"][0]["median"]


def seconds_of_pytorch():
    script = pathlib.Path(__file__).with_name("pytorch_step.py")
    run = subprocess.run([sys.executable, str(script), "--warm-up=2", "--steps=5"],
                         stdout=subprocess.PIPE, check=True, text=True)
    return statistics.median(float(line) for line in run.stdout.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="zeroplan_executor_benchmarks")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()

    ours, theirs = [], []
    for turn in range(1, options.turns + 1):
        ours.append(seconds_of_zeroplan(options.program))
        theirs.append(seconds_of_pytorch())
        print(f"turn {turn} of {options.turns}: zeroplan {ours[-1]:.3f} s, PyTorch {theirs[-1]:.3f} s",
              file=sys.stderr, flush=True)

    print(f"GPT-2 124M, 4 x 64 tokens, fp32, AdamW, {len(os.sched_getaffinity(0))} processors; "
          f"of {options.turns} turns' medians of 5 steps:")
    print(f"{'seconds a step':16} {'median':>8} {'fastest':>8} {'slowest':>8}")
    for name, seconds in (("zeroplan", ours), ("PyTorch", theirs)):
        print(f"{name:16} {statistics.median(seconds):8.3f} {min(seconds):8.3f} {max(seconds):8.3f}")
    print(f"zeroplan / PyTorch, of the medians: {statistics.median(ours) / statistics.median(theirs):.2f}")


if __name__ == "__main__":
    main()

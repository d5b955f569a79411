"""Predicted beside measured step times of 20 plans on this machine: scripts/check_times."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

GPT = "layers={},hidden={},heads={},vocab={}"
LLAMA = "layers={},hidden={},heads={},kv_heads={},ffn={},vocab={},gated=true"

# Model, options. Each takes at least a second a step on two processors.
ONE_RANK = [
    ("gpt2", "--seq 512 --dtype fp32"),
    ("gpt2", "--seq 256 --micro-batch 2 --dtype bf16"),
    ("gpt2", "--seq 512 --dtype fp16 --attention materialized"),
    (GPT.format(4, 1024, 16, 8192), "--seq 512 --micro-batch 2 --dtype fp32"),
    (GPT.format(8, 512, 8, 16384), "--seq 1024 --micro-batch 2 --dtype fp16 --attention materialized"),
    (GPT.format(3, 1600, 25, 8000), "--seq 384 --micro-batch 2 --dtype bf16"),
    ("opt-125m", "--seq 256 --dtype fp32 --grad-accum 2"),
    (LLAMA.format(4, 1024, 16, 4, 2816, 16000), "--seq 512 --micro-batch 2 --dtype bf16"),
    (LLAMA.format(6, 768, 12, 12, 2048, 8000), "--seq 1024 --dtype fp32 --recompute full"),
    (LLAMA.format(3, 1152, 9, 3, 3072, 12000), "--seq 640 --dtype fp32 --offload optimizer"),
]
TWO_RANKS = [
    ("gpt2", "--seq 256 --dtype fp32 --gpus 2 --zero 0"),
    ("gpt2", "--seq 256 --dtype bf16 --gpus 2 --zero 1"),
    (GPT.format(6, 768, 12, 8192), "--seq 256 --dtype fp16 --gpus 2 --zero 2 --grad-accum 2"),
    (LLAMA.format(4, 1024, 16, 4, 2816, 16000), "--seq 384 --dtype fp32 --gpus 2 --zero 3 --recompute full"),
    (GPT.format(4, 1024, 16, 8192), "--seq 512 --dtype fp32 --gpus 2 --tp 2"),
]
TWO_PROCESSES = [
    ("gpt2", "--seq 256 --dtype fp32 --zero 1"),
    (GPT.format(6, 768, 12, 8192), "--seq 512 --dtype bf16 --zero 3"),
    (LLAMA.format(4, 1024, 16, 4, 2816, 16000), "--seq 256 --dtype fp16 --zero 2 --grad-accum 2"),
    (GPT.format(4, 1024, 16, 8192), "--seq 512 --micro-batch 2 --dtype bf16 --tp 2"),
    ("gpt2", "--seq 256 --dtype fp32 --zero 3"),
]


def mpirun():
    return [shutil.which("mpirun") or "mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"]


def run(words):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    result = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if result.returncode not in (0, 1):
        sys.exit(f"{' '.join(words)}: exit code {result.returncode}\n{result.stderr}")
    return result.stdout


def calibrated(program, path, given, launcher, ranks):
    if given:
        return given
    print(f"calibrating {'under mpirun' if launcher else 'this machine'}", file=sys.stderr)
    run([*launcher, program, "calibrate", *ranks, "--out", path])
    return path


def seconds_text(time):
    if time is None:
        return f"{'':>24}"
    error = 100 * time["relative_error"]
    return f"{1e3 * time['predicted']:>8.1f} {1e3 * time['measured']:>8.1f} {error:>+6.1f}"


# Without an error: most of it is noise of the machine.
def waiting_text(time):
    return f"{1e3 * time['predicted']:>8.1f} {1e3 * time['measured']:>8.1f}" if time else f"{'':>17}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--profile", help="of the ranks as threads, from zeroplan calibrate")
    parser.add_argument("--mpi-profile", help="of processes: mpirun -n 2 zeroplan calibrate --ranks 2")
    parser.add_argument("--steps", default="3")
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="check_times.")
    threads = calibrated(arguments.program, f"{folder}/threads.yaml", arguments.profile, [], [])
    launcher = mpirun()
    processes = calibrated(
        arguments.program, f"{folder}/mpi.yaml", arguments.mpi_profile, launcher, ["--ranks", "2"])

    errors = {"step": [], "traffic": []}
    print(f"{'':76}{'step, ms':>24} {'traffic, ms':>24} {'waiting, ms':>17}  {'share that waits, %':>19}")
    for plans, words, profile in [
            (ONE_RANK, [], threads), (TWO_RANKS, [], threads), (TWO_PROCESSES, launcher, processes)]:
        for model, options in plans:
            record = json.loads(run([
                *words, arguments.program, "validate", model, *options.split(), "--hw", profile, "--steps",
                arguments.steps, "-o", "json"]))
            times = {time["key"]: time for time in record["times"]}
            traffic = times.get("time.data_parallel") or times.get("time.tensor_parallel")
            waiting = times.get("time.waiting")
            share = times.get("time.exposed_share")
            errors["step"].append(abs(times["time.step"]["relative_error"]))
            if traffic:
                errors["traffic"].append(abs(traffic["relative_error"]))
            name = f"{'mpirun ' if words else ''}{model} {options}"
            shares = f"{100 * share['predicted']:>9.1f} {100 * share['measured']:>9.1f}" if share else ""
            print(f"{name[:75]:<76}{seconds_text(times['time.step'])} {seconds_text(traffic)} "
                  f"{waiting_text(waiting)}  {shares}", flush=True)
    for what, values in errors.items():
        print(f"{what}: median {100 * statistics.median(values):.1f} %, largest {100 * max(values):.1f} % "
              f"of {len(values)}")


if __name__ == "__main__":
    main()

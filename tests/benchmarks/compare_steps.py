#!/usr/bin/python3
"""Runs the training step's benchmark and its PyTorch counterpart in turns; prints medians and the ratios.

PyTorch's allocator gives memory back to the system and asks for it again in every step, and most of such a step is page
faults; here it may keep what it has, as our arena does. Both must multiply with the same kernels of the same library:
exit code 1 where they do not.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

KEEP_BYTES = str(10 * 10**9)
PYTORCH_ENVIRONMENT = {**os.environ, "MALLOC_TRIM_THRESHOLD_": KEEP_BYTES, "MALLOC_MMAP_THRESHOLD_": KEEP_BYTES}

# Prints, as JSON, the files of the BLAS that are mapped, and what each OpenBLAS among them says of itself: its build, and the
# processor that its kernels are for. One build may be mapped under several names (alternatives, stubs that only link it).
BLAS_OF_PROCESS = """
import ctypes, json, os, sys
if len(sys.argv) > 1:
    ctypes.CDLL(sys.argv[1])
else:
    import torch
names = [line.split()[-1] for line in open("/proc/self/maps")]
files = sorted({os.path.realpath(name) for name in names if "blas" in name})
says = set()
for file in files:
    library = ctypes.CDLL(file)
    if hasattr(library, "openblas_get_corename") and hasattr(library, "openblas_get_config"):
        library.openblas_get_config.restype = library.openblas_get_corename.restype = ctypes.c_char_p
        says.add((library.openblas_get_config().decode().strip(), library.openblas_get_corename().decode()))
print(json.dumps({"files": files, "openblas": sorted(says)}))
"""


def output_of(*words, environment=None):
    run = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True, env=environment)
    return run.stdout


def blas_of(library=None, environment=None):
    """Of a process that loads the library, or PyTorch."""
    words = [library] if library else []
    return json.loads(output_of(sys.executable, "-c", BLAS_OF_PROCESS, *words, environment=environment))


def blas_of_zeroplan(program):
    libraries = [line.split()[2] for line in output_of("ldd", program).splitlines() if "blas" in line and "=>" in line]
    return blas_of(libraries[0]) if libraries else {"files": [], "openblas": []}


def blas_of_pytorch():
    return blas_of(environment=PYTORCH_ENVIRONMENT)


def same_kernels(ours, theirs):
    """Whether both are one build of OpenBLAS with kernels for one processor; of other libraries, the same files."""
    if ours["openblas"] or theirs["openblas"]:
        return ours["openblas"] == theirs["openblas"]
    return bool(ours["files"]) and ours["files"] == theirs["files"]


def words_of(blas):
    says = [f"{config}, {core} kernels" for config, core in blas["openblas"]]
    return "; ".join(says + blas["files"]) or "linked in"


def step_of_zeroplan(program):
    """Median seconds of a step, and mean processor seconds."""
    text = output_of(program, "--benchmark_filter=^gpt2_step", "--benchmark_format=json")
    result = json.loads(text)["benchmarks"][0]
    return result["median"], result["processor"]


def step_of_pytorch():
    script = pathlib.Path(__file__).with_name("pytorch_step.py")
    text = output_of(sys.executable, str(script), "--warm-up=2", "--steps=5", environment=PYTORCH_ENVIRONMENT)
    steps = [[float(word) for word in line.split()] for line in text.splitlines()]
    return statistics.median(step[0] for step in steps), statistics.mean(step[1] for step in steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="zeroplan_executor_benchmarks")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()

    blas = {"zeroplan": blas_of_zeroplan(options.program), "PyTorch": blas_of_pytorch()}
    ours, theirs = [], []
    for turn in range(1, options.turns + 1):
        ours.append(step_of_zeroplan(options.program))
        theirs.append(step_of_pytorch())
        print(f"turn {turn} of {options.turns}: zeroplan {ours[-1][0]:.3f} s, PyTorch {theirs[-1][0]:.3f} s",
              file=sys.stderr, flush=True)

    print(f"GPT-2 124M, 4 x 64 tokens, fp32, AdamW, {len(os.sched_getaffinity(0))} processors; "
          f"of {options.turns} turns' medians of 5 steps, PyTorch with its memory kept:")
    print(f"{'seconds a step':16} {'median':>8} {'fastest':>8} {'slowest':>8} {'processor':>10}")
    median = {}
    for name, turns in (("zeroplan", ours), ("PyTorch", theirs)):
        seconds = [turn[0] for turn in turns]
        median[name] = statistics.median(seconds), statistics.median(turn[1] for turn in turns)
        print(f"{name:16} {median[name][0]:8.3f} {min(seconds):8.3f} {max(seconds):8.3f} {median[name][1]:10.3f}")
    print(f"zeroplan / PyTorch, of the medians: {median['zeroplan'][0] / median['PyTorch'][0]:.2f}; of processor time, "
          f"which a busy machine disturbs less: {median['zeroplan'][1] / median['PyTorch'][1]:.2f}")
    for name, library in blas.items():
        print(f"BLAS of {name}: {words_of(library)}")
    if not same_kernels(blas["zeroplan"], blas["PyTorch"]):
        print("the two did not multiply with the same kernels: the ratios compare libraries", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()

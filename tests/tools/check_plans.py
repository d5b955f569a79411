#!/usr/bin/env python3
"""Runs `zeroplan validate` on hundreds of plans: check_plans.py PROGRAM [--seed N] [--random N] [--jobs N]

A grid over ZeRO stages, ranks, tensor parallelism, recomputation, types, accumulation, optimizers, offload, partitioned
activations, ties and engines, and plans drawn by a seed with odd shapes. Each run takes its first two steps again on
one rank. A plan agrees (exit code 0) or is refused with a reason (2 or 3). Everything else is a defect, and so is
a refusal that calls itself one.
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import random
import subprocess
import sys
import time

TINY = "layers=3,hidden=72,heads=6,vocab=257"


def grid():
    """By the options that plans are made of."""
    plans = []

    def add(model, *options):
        plans.append(f"{model} --seq 24 " + " ".join(o for o in options if o))

    for gpus, zero, dtype in itertools.product((1, 2, 4), (0, 1, 2, 3), ("fp32", "fp16", "bf16")):
        add(TINY, f"--gpus {gpus} --zero {zero} --dtype {dtype}")
    for tp, zero, recompute in itertools.product((2, 3, 6), (0, 1, 2, 3), ("none", "selective", "full")):
        add(TINY, f"--gpus {2 * tp} --tp {tp} --zero {zero} --recompute {recompute} --dtype fp32")
    for zero, accum, tied in itertools.product((0, 1, 2, 3), (2, 3), ("true", "false")):
        add(TINY + f",tied={tied}", f"--gpus 2 --zero {zero} --grad-accum {accum} --dtype bf16")
    for optimizer, zero in itertools.product(("sgd", "sgd-momentum", "lion", "adafactor", "adam8bit"), (0, 1, 2, 3)):
        add(TINY, f"--gpus 2 --zero {zero} --optimizer {optimizer} --dtype fp32")
    for offload, zero, dtype in itertools.product(("optimizer", "all"), (1, 2, 3), ("fp32", "fp16", "bf16")):
        add(TINY, f"--gpus 2 --zero {zero} --offload {offload} --dtype {dtype}")
    for zero, host in itertools.product((0, 1, 2, 3), ("", "--offload-activations=on")):
        add(TINY, f"--gpus 4 --tp 2 --zero {zero} --recompute full --partition-activations=on {host} --dtype fp32")
    for engine, zero, dtype in itertools.product(
            ("deepspeed", "fsdp2", "llm-foundry", "megatron", "megatron-v1", "pytorch", "deepspeed-estimator"),
            (0, 1, 2, 3), ("fp32", "bf16")):
        add(TINY, f"--gpus 2 --zero {zero} --engine {engine} --dtype {dtype}")
    for engine in ("fsdp2", "llm-foundry", "deepspeed"):
        for zero in (1, 2, 3):
            add(TINY, f"--gpus 2 --zero {zero} --engine {engine} --dtype fp16")
            add(TINY, f"--gpus 2 --zero {zero} --engine {engine} --dtype bf16 --offload optimizer")
    for zero, accum, dtype in itertools.product((1, 2, 3), (1, 2), ("fp32", "bf16")):
        add(TINY, f"--gpus 4 --zero {zero} --shard 2 --grad-accum {accum} --dtype {dtype}")
    for zero, shard in itertools.product((1, 2, 3), (2, 3)):
        add(TINY, f"--gpus 12 --tp 2 --zero {zero} --shard {shard} --recompute full --dtype fp16")
    for engine, zero in (("fsdp2", 2), ("fsdp2", 3), ("deepspeed", 3), ("deepspeed", 2), ("megatron", 1), ("internevo", 1)):
        add(TINY, f"--gpus 4 --zero {zero} --shard 2 --engine {engine} --grad-accum 2 --dtype bf16")
    for second, recompute in itertools.product((2, 4), ("none", "full")):
        add(TINY, f"--gpus 4 --zero 3 --secondary-shard {second} --recompute {recompute} --dtype bf16")
    for attention, zero in itertools.product(("flash", "materialized"), (0, 3)):
        add(TINY + ",gated=true,kv_heads=2", f"--gpus 2 --zero {zero} --attention {attention} --dtype fp32")
    return plans


def drawn(seed, count):
    """Odd shapes: sequences and vocabularies of 1, one key-value head, wide heads, an MLP of width 1."""
    rng = random.Random(seed)
    plans = []
    for _ in range(count):
        heads = rng.choice((1, 2, 3, 4, 6, 8))
        width = rng.choice((1, 2, 3, 4, 8, 10, 16))
        model = [f"layers={rng.choice((1, 2, 3, 5))}", f"hidden={heads * width}", f"heads={heads}",
                 f"vocab={rng.choice((1, 2, 7, 64, 129, 257))}"]
        if rng.random() < 0.4:
            model.append(f"kv_heads={rng.choice([h for h in (1, 2, 3, 4) if heads % h == 0])}")
        if rng.random() < 0.2:
            model.append(f"head_dim={rng.choice((2, 4, 6, 32))}")
        if rng.random() < 0.3:
            model.append(f"ffn={rng.choice((1, 5, 64, 100))}")
        for key in ("gated", "tied"):
            if rng.random() < 0.3:
                model.append(f"{key}={rng.choice(('true', 'false'))}")
        options = [f"--seq {rng.choice((1, 2, 5, 16, 33))}", f"--micro-batch {rng.choice((1, 1, 2, 3))}",
                   f"--gpus {rng.choice((1, 2, 3, 4, 6))}", f"--zero {rng.choice((0, 1, 2, 3))}",
                   f"--tp {rng.choice((1, 1, 1, 2, 3))}", f"--dtype {rng.choice(('fp32', 'fp16', 'bf16'))}",
                   f"--recompute {rng.choice(('none', 'none', 'selective', 'full'))}",
                   f"--grad-accum {rng.choice((1, 1, 2, 3))}",
                   f"--offload {rng.choice(('none', 'none', 'none', 'optimizer', 'all'))}",
                   f"--optimizer {rng.choice(('adam', 'adam', 'adam', 'sgd', 'sgd-momentum', 'lion'))}"]
        if rng.random() < 0.2:
            options.append("--attention materialized")
        if rng.random() < 0.15:
            options.append("--partition-activations=on")
        if rng.random() < 0.2:
            options.append(f"--engine {rng.choice(('deepspeed', 'fsdp2', 'megatron', 'pytorch', 'llm-foundry'))}")
        if rng.random() < 0.15:
            options.append("--contiguous-memory=off")
        if rng.random() < 0.15:
            options.append(f"--shard {rng.choice((2, 3))}")
        plans.append(",".join(model) + " " + " ".join(options))
    return plans


def run(program, plan):
    """Fate, and the words that belong to it."""
    command = [program, "validate", *plan.split(), "--against-one-rank", "2", "--timeout", "60", "--threads", "1", "-o", "json"]
    try:
        ended = subprocess.run(command, text=True, capture_output=True, timeout=300)
    except subprocess.TimeoutExpired:
        return "defect", "it did not end within 300 s"
    record = None
    try:
        record = json.loads(ended.stdout)
    except ValueError:
        pass
    words = record["reason"] if record and record["reason"] else (ended.stderr.strip().splitlines() or [""])[-1]
    if ended.returncode == 0 and record and record["outcome"] == "agrees":
        return "agrees", ""
    if ended.returncode in (2, 3) and words and "defect" not in words + ended.stderr:
        return ("not possible here" if ended.returncode == 3 else "no such plan"), words
    if record and ended.returncode == 1:
        off = [f"{r['key']} {r['predicted']} {r['measured']}" for r in record["comparison"] if not r["ok"]]
        words = "; ".join(off)
    return "defect", f"exit code {ended.returncode}: {words}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--random", type=int, default=250)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--reasons", action="store_true", help="also print the reason of every refusal")
    arguments = parser.parse_args()
    plans = grid() + drawn(arguments.seed, arguments.random)
    start = time.time()
    fates = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for plan, (fate, words) in zip(plans, pool.map(lambda plan: run(arguments.program, plan), plans)):
            fates[fate] += 1
            if fate == "defect" or (arguments.reasons and fate != "agrees"):
                print(f"{fate}: {plan}\n    {words}", flush=True)
    print(f"{len(plans)} plans in {time.time() - start:.0f} s: " +
          ", ".join(f"{count} {fate}" for fate, count in sorted(fates.items())))
    return 1 if fates["defect"] else 0


if __name__ == "__main__":
    sys.exit(main())

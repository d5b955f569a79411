#!/usr/bin/env python3
"""Saves to one name from many processes at once, and kills at random moments of a save.

    tests/tools/check_saves.py PROGRAM [--runs 100] [--kills 100] [--seed 1]

PROGRAM is zeroplan. Reads what is left with this file's own reader of safetensors and zlib's CRC-32, and compares it
with the states that undisturbed runs saved. Prints what came of it; exit code 0 when every file was one run's state,
whole.
"""
import argparse
import json
import os
import random
import signal
import struct
import subprocess
import tempfile
import time
import zlib

MODEL = ["layers=4,hidden=192,heads=4,vocab=4096", "--seq", "16", "--dtype", "fp32", "--warm-up", "0", "-q"]


def run(program, *arguments):
    return subprocess.Popen([program, "validate", *MODEL, "--threads", "1", *arguments], stderr=subprocess.DEVNULL)


def state_of(path):
    """(steps, checks of all tensors) of a checkpoint that is whole, else an AssertionError."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    text = data[: 8 + length]
    header = json.loads(text[8:])
    metadata = header.pop("__metadata__")
    check = metadata["header_crc32"].encode()
    assert zlib.crc32(text.replace(b'"header_crc32":"' + check, b'"header_crc32":"00000000')) == int(check, 16), "header"
    names = sorted(header, key=lambda name: header[name]["data_offsets"])
    for i, name in enumerate(names):
        begin, end = header[name]["data_offsets"]
        part = data[8 + length + begin : 8 + length + end]
        assert len(part) == end - begin, f"{name} is cut short"
        assert zlib.crc32(part) == int(metadata["crc32"][8 * i : 8 * i + 8], 16), name
    return int(metadata["steps"]), metadata["crc32"]


def races(program, count):
    """`count` runs of ten seeds at once: how often a file was there and whole, and whose was the last."""
    seeds = range(1, 11)
    with tempfile.TemporaryDirectory() as folder:
        expected = {}
        for seed in seeds:
            path = os.path.join(folder, f"alone{seed}")
            assert run(program, "--steps", "1", "--seed", str(seed), "--save", path).wait() == 0
            expected[state_of(path)] = seed
        path = os.path.join(folder, "race", "state")
        os.mkdir(os.path.dirname(path))
        running = [run(program, "--steps", "1", "--seed", str(i % 10 + 1), "--save", path) for i in range(count)]
        looked = 0
        while any(one.poll() is None for one in running):
            if os.path.exists(path):
                assert state_of(path) in expected, "the state of no run"
                looked += 1
            time.sleep(0.01)
        codes = [one.wait() for one in running]
        last = expected[state_of(path)]
        left = sorted(os.listdir(os.path.dirname(path)))
        print(f"{count} runs saved to one name at once: exit codes {sorted(set(codes))}; {looked} looks meanwhile, each "
              f"one run's state, whole; at the end that of seed {last}; in the folder: {left}")
        return set(codes) == {0} and left == ["state"]


def kills(program, count, seed):
    """Kills a run that saves after each step, again and again; each goes on from what the last one left."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state")
        # The state after a number of steps is the same in every run: they go on with the same bits.
        assert run(program, "--steps", "1", "--save", path).wait() == 0
        in_a_save = advanced = killed = 0
        while killed < count:
            before, _ = state_of(path)
            one = run(program, "--steps", "1000000", "--resume", path, "--save", path, "--save-every", "1")
            partial = None
            until = time.monotonic() + 60
            while partial is None and one.poll() is None and time.monotonic() < until:
                partial = next((name for name in os.listdir(folder) if name.endswith(".partial")), None)
            time.sleep(chance.uniform(0, 1.5))
            one.send_signal(signal.SIGKILL)
            assert one.wait() == -signal.SIGKILL
            killed += 1
            in_a_save += any(name.endswith(".partial") for name in os.listdir(folder))
            after, _ = state_of(path)
            assert after >= before, f"{before} steps became {after}"
            advanced += after > before
        last, checks = state_of(path)
        # The last state is the one that a run without kills comes to.
        alone = os.path.join(folder, "alone")
        assert run(program, "--steps", str(last), "--save", alone).wait() == 0
        assert state_of(alone) == (last, checks), "the state is not that of an undisturbed run"
        names = [name for name in os.listdir(folder) if name.endswith(".partial")]
        print(f"{count} kills: each left the old state or a new one, whole ({in_a_save} in the middle of a save, {advanced} "
              f"left a newer one); after {last} steps the bits are those of a run without kills; {len(names)} unfinished "
              "files left, which the next save removes")
        return len(names) <= 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    fine = races(program, options.runs)
    fine = kills(program, options.kills, options.seed) and fine
    raise SystemExit(0 if fine else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Breaks zeroplan on purpose, and looks whether `zeroplan validate` says so.

  mutants.py named                    seven known mistakes, each of which must end in a no
  mutants.py gpu                      mistakes in the GPU's path, each of which a test on the emulated GPU must tell
  mutants.py drawn --seed N --count K mistakes drawn from the executor's and the compiler's source

The sources are copied to --tree (default build/mutants) and built there, mutant by mutant: one file and a link each.
"""
import argparse
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

from gpu_mutants import MUTANTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPT = "layers=3,hidden=48,heads=4,vocab=259 --seq 24"
LLAMA = "layers=2,hidden=48,heads=4,kv_heads=2,ffn=80,vocab=131,gated=true,tied=false --seq 17"

# Between them: every ZeRO stage, both groups, offload, recomputation, all three types, accumulation, an engine with
# fp32 parameters, and odd sizes. Every run is compared with one rank.
PLANS = [
    f"{GPT} --gpus 2 --zero 2 --dtype fp32",
    f"{GPT} --gpus 4 --tp 2 --zero 3 --dtype fp32 --recompute full --partition-activations=on --offload-activations=on",
    f"{GPT} --gpus 3 --zero 1 --offload optimizer --dtype fp16 --grad-accum 2",
    f"{GPT} --gpus 2 --zero 3 --offload all --dtype bf16",
    f"{LLAMA} --gpus 4 --tp 2 --zero 1 --dtype fp32 --attention materialized --recompute selective --grad-accum 2",
    f"{GPT} --gpus 2 --zero 3 --dtype bf16 --engine fsdp2",
    f"{GPT} --gpus 2 --zero 0 --dtype fp32 --micro-batch 3 --optimizer sgd-momentum",
    f"{GPT} --gpus 4 --zero 2 --shard 2 --dtype fp32 --grad-accum 2",
    f"{LLAMA} --gpus 4 --zero 3 --secondary-shard 2 --dtype bf16 --recompute full",
]

# name, file, what stands there once, what replaces it, the plan that shows it.
NAMED = [
    ("a reduce-scatter that moves nothing", "executor/communicator/threads/thread_communicator.cpp",
     "moved_.add(TransferKind::reduce_scatter, reduce_share(whole.type, own, Reduction::sum, false));",
     "(void)own;",
     f"{GPT} --gpus 2 --zero 2 --dtype fp32"),
    ("a program without tensor-parallel all-reduces", "planner/program/builder.cpp",
     "if (group == kNoGroup) return;",
     "if (group == kNoGroup || program_.groups[group].kind == GroupKind::tensor_parallel) return;",
     f"{GPT} --gpus 2 --tp 2 --dtype fp32"),
    ("a wrong partition offset", "planner/program/zero_layout.cpp",
     'builder_.view("weight_gradients.own", unit.weight_gradients,\n'
     "                                               own_index * unit.partition, unit.partition);",
     'builder_.view("weight_gradients.own", unit.weight_gradients,\n'
     "                                               (own_index + 1) % partitions * unit.partition, unit.partition);",
     f"{GPT} --gpus 2 --zero 2 --dtype fp32"),
    ("an optimizer state declared twice as large", "planner/program/zero_layout.cpp",
     "builder_.buffer(state_name(part.name), type, Category::optimizer_state, elements, each, states_space);",
     "builder_.buffer(state_name(part.name), type, Category::optimizer_state, 2 * elements, each, states_space);",
     f"{GPT} --gpus 2 --zero 1 --dtype fp32"),
    ("a collective over the wrong group", "planner/program/emit.cpp",
     "builder.tensor_collective(Op::all_reduce, shapes.tokens * width",
     "builder.collective(Op::all_reduce, builder.program().find_group(GroupKind::data_parallel), shapes.tokens * width",
     f"{GPT} --gpus 4 --tp 2 --zero 1 --dtype fp32"),
    ("a hybrid shard whose gradients are not summed over its replicas", "planner/program/zero_policy.cpp",
     "builder_.collective(Op::all_reduce, layout_.replica, unit.partition, {own}, 0, layout_.traffic);",
     "if (layout_.shard == kNoGroup)\n"
     "      builder_.collective(Op::all_reduce, layout_.replica, unit.partition, {own}, 0, layout_.traffic);",
     f"{GPT} --gpus 4 --zero 3 --shard 2 --dtype fp32"),
    ("a skipped barrier", "executor/communicator/threads/thread_communicator.cpp",
     "begin({.kind = Call::Kind::barrier});\n    group_->finish(rank_);",
     "",
     f"{GPT} --gpus 2 --zero 1 --dtype fp32"),
]


class Tree:
    """A copy of the sources with a build of its own."""

    def __init__(self, path, jobs):
        self.path = path
        self.build_path = path / "build" / "mutants"
        self.jobs = jobs
        files = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True, capture_output=True, check=True).stdout
        for copy in [copy for top in ("planner", "executor", "reports", "cli", "tests") for copy in (path / top).rglob("*.*")]:
            if not (ROOT / copy.relative_to(path)).exists():
                copy.unlink()
        for name in files.splitlines():
            source, copy = ROOT / name, path / name
            if copy.exists() and copy.read_bytes() == source.read_bytes():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
        subprocess.run(["cmake", "-S", path, "-B", self.build_path, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
                        "-DCMAKE_CXX_FLAGS_DEBUG=-O1", "-DZEROPLAN_BENCHMARKS=OFF"],
                       check=True, stdout=subprocess.DEVNULL)

    def build(self, target="zeroplan"):
        """Whether it compiles."""
        return subprocess.run(["cmake", "--build", self.build_path, "--target", target, f"-j{self.jobs}"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def write(self, name, text):
        (self.path / name).write_text(text)

    def restore(self, name):
        self.write(name, (ROOT / name).read_text())

    def validate(self, plan, timeout):
        """Exit code, what of the run can be compared, and the verdict in words."""
        command = f"{self.build_path}/zeroplan validate {plan} --against-one-rank 2 --timeout 5 --rate 1e-2 -o json"
        try:
            run = subprocess.run(command.split(), text=True, capture_output=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return "hangs", None, "it did not end"
        try:
            record = json.loads(run.stdout)
        except ValueError:
            return run.returncode, None, (run.stderr.strip().splitlines() or ["no record"])[-1]
        off = [row["key"] for row in record["comparison"] if not row["ok"]]
        seen = None
        if record["measured"]:
            steps = [(s["loss"], s["gradient_norm"], s["loss_scale"]) for s in record["measured"]["steps"]]
            rows = [(r["key"], r["predicted"], r["measured"]) for r in record["comparison"]
                    if r["key"] != "memory.process" and not r["key"].startswith("one_rank")]
            seen = (steps, rows)
        return run.returncode, seen, ", ".join(off) or record["reason"] or record["outcome"]


def named(tree):
    failed = 0
    for name, file, old, new, plan in NAMED:
        text = (ROOT / file).read_text()
        if text.count(old) != 1:
            sys.exit(f"{file}: what the mutant \"{name}\" replaces stands there {text.count(old)} times, expected once")
        start = time.time()
        tree.write(file, text.replace(old, new))
        if not tree.build():
            sys.exit(f"the mutant \"{name}\" does not compile")
        code, _, words = tree.validate(plan, 120)
        tree.restore(file)
        killed = code in (1, 4)
        failed += not killed
        print(f"{'no ' if killed else 'YES'}  {name}: exit code {code}, {words} ({time.time() - start:.0f} s)", flush=True)
    print(f"{len(NAMED) - failed} of {len(NAMED)} mutants were told")
    return failed


# ---- mutants of the GPU's path ----


def told_by(tree, tests):
    """Which test on the emulated GPU tells the mutant that was built; None where none does. Files are tried in their order."""
    for files in tests.split(","):
        try:
            run = subprocess.run([tree.build_path / "tests" / "zeroplan_emulation_tests", f"--source-file={files}",
                                  "--abort-after=1"], cwd=ROOT, text=True, capture_output=True, timeout=900)
        except subprocess.TimeoutExpired:
            return "it hangs"
        if run.returncode != 0:
            match = re.search(r"TEST CASE:\s*(.*)", run.stdout)
            return match.group(1) if match else f"exit code {run.returncode}"
    return None


def gpu(tree, seconds, first):
    """Each mutant of gpu_mutants.py must be told by tests on the emulated GPU, or end in a crash or a hang."""
    start = time.time()
    failed = done = 0
    for name, file, old, new, tests in MUTANTS[first - 1:]:
        if time.time() - start > seconds:
            break
        text = (ROOT / file).read_text()
        if text.count(old) != 1:
            sys.exit(f"{file}: what the mutant \"{name}\" replaces stands there {text.count(old)} times, expected once")
        tree.write(file, text.replace(old, new))
        if not tree.build("zeroplan_emulation_tests"):
            sys.exit(f"the mutant \"{name}\" does not compile")
        told = told_by(tree, tests)
        tree.restore(file)
        done += 1
        failed += told is None
        print(f"{'no ' if told else 'YES'}  {name}: {told or 'no test told it'} ({time.time() - start:.0f} s)", flush=True)
    print(f"{done - failed} of {done} mutants were told")
    return failed


# ---- drawn mutants ----

SOURCES = ["executor/*.cpp", "executor/communicator/*.cpp", "executor/communicator/threads/*.cpp",
           "planner/program/*.cpp"]
# No run of `validate` without a checkpoint or a launcher passes through these.
LEFT_OUT = {"executor/checkpoint.cpp", "executor/launch.cpp", "executor/modules.cpp"}

SWAPS = [(r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "),
         (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "),
         (r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"\bmin\b", "max"), (r"\bmax\b", "min"),
         (r"\+\+", "--"), (r" / ", " * "), (r" % ", " / "), (r"\+= ", "-= ")]


def mutations_of(line):
    """All ways to break one line: (what was done, the new line)."""
    code = line.split("//")[0]
    if not code.strip() or code.lstrip().startswith(("#", "*", "using ", "namespace", "template", "static_assert")):
        return
    if '"' in code and "fmt::format" in code:
        return  # a message
    for pattern, to in SWAPS:
        for match in re.finditer(pattern, code):
            before = code[:match.start()]
            if before.count('"') % 2 == 1:
                continue
            yield f"{match.group().strip()} -> {to.strip()}", before + to + line[match.end():]
    for match in re.finditer(r"(?<![\w.\"'])(\d+)(?![\w.\"'])", code):
        if code[:match.start()].count('"') % 2 == 0:
            yield f"{match.group()} -> {int(match.group()) + 1}", \
                code[:match.start()] + str(int(match.group()) + 1) + line[match.end():]
    match = re.match(r"(\s*)(?:if|while) \((.*)\)( return.*;| continue;| break;| \{)?\s*$", code)
    if match:
        yield "condition negated", code.replace("(" + match.group(2) + ")", "(!(" + match.group(2) + "))", 1)
    if re.match(r"\s+[\w:\[\].>\-()*]+(\(.*\)| [+\-|]?= .*);\s*$", code) and not re.match(r"\s+(return|throw|const|auto)", code):
        yield "statement dropped", re.match(r"\s*", code).group() + ";\n"


def all_mutants():
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            name = str(path.relative_to(ROOT))
            if name in LEFT_OUT:
                continue
            for number, line in enumerate(path.read_text().splitlines(keepends=True)):
                for what, new in mutations_of(line):
                    yield name, number, what, line, new


def unit_tests(tree):
    """The second line: the executor's and the compiler's own tests."""
    if not tree.build("zeroplan_executor_tests") or not tree.build("zeroplan_tests"):
        return "the tests do not compile"
    for program, area in (("zeroplan_tests", "*/tests/program/*,*/tests/predict/*"),
                          ("zeroplan_executor_tests", "*/tests/executor/*")):
        try:
            run = subprocess.run([tree.build_path / "tests" / program, f"--source-file={area}", "--abort-after=1",
                                  "--source-file-exclude=*/sockets_test.cpp"],
                                 cwd=ROOT, text=True, capture_output=True, timeout=900)
        except subprocess.TimeoutExpired:
            return "a test hangs"
        if run.returncode != 0:
            match = re.search(r"TEST CASE:\s*(.*)", run.stdout)
            return match.group(1) if match else f"a test ended with {run.returncode}"
    return None


def drawn(tree, seed, count, seconds, with_tests):
    rng = random.Random(seed)
    mutants = list(all_mutants())
    rng.shuffle(mutants)
    print(f"seed {seed}: {len(mutants)} possible mutants")
    if not tree.build():
        sys.exit("the sources do not compile")
    sound = [tree.validate(plan, 120) for plan in PLANS]
    for plan, (code, _, words) in zip(PLANS, sound):
        if code != 0:
            sys.exit(f"without a mutant, validate {plan} ends with {code}: {words}")
    start = time.time()
    counts = {"validate": 0, "tests": 0, "no effect": 0, "survived": 0}
    done = 0
    for name, number, what, old, new in mutants:
        if done == count or time.time() - start > seconds:
            break
        lines = (ROOT / name).read_text().splitlines(keepends=True)
        lines[number] = new
        tree.write(name, "".join(lines))
        if tree.build():
            done += 1
            fate, words = judge(tree, sound, with_tests)
            counts[fate] += 1
            print(f"{done:3} {fate:9} {name}:{number + 1}: {what}: `{old.strip()}`: {words}", flush=True)
        tree.restore(name)
    changing = done - counts["no effect"]
    print(f"{done} mutants in {time.time() - start:.0f} s: {counts['no effect']} change no loss, byte or memory; of the other "
          f"{changing}, validate told {counts['validate']}, tests {counts['tests']}, {counts['survived']} survived")
    return counts["survived"]


def judge(tree, sound, with_tests):
    effect = None
    for plan, (_, seen, _) in zip(PLANS, sound):
        code, mutated, words = tree.validate(plan, 60)
        if code != 0:
            return "validate", f"exit code {code}, {words}"
        if mutated != seen:
            effect = effect or plan
    if effect is None:
        return "no effect", "losses, norms and every figure are as before"
    words = unit_tests(tree) if with_tests else None
    if words:
        return "tests", words
    return "survived", f"changes {effect}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["named", "drawn", "gpu"])
    parser.add_argument("--tree", type=pathlib.Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no further mutant is drawn after these")
    parser.add_argument("--no-tests", action="store_true", help="only validate judges")
    parser.add_argument("--first", type=int, default=1, help="of the list; gpu only")
    arguments = parser.parse_args()
    tree = Tree(arguments.tree, arguments.jobs)
    if arguments.what == "named":
        return 1 if named(tree) else 0
    if arguments.what == "gpu":
        return 1 if gpu(tree, arguments.seconds, arguments.first) else 0
    return 1 if drawn(tree, arguments.seed, arguments.count, arguments.seconds, not arguments.no_tests) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Writes the columns that say how a published run is planned (docs/accuracy.md) into a file of runs.

    tests/tools/label_runs.py RUNS.csv > LABELLED.csv

This is preparation of data, run once for each file that was collected; its output is committed, and the program
reads the columns and nothing else. What people know of the sources stands here: which framework the words of a source
mean, what a date says of a version, what a note says of a plan. RUNS.csv has the columns of measured_runs.csv, with
the columns made here or without, or those of the two files of GitHub VIA-Research/vTrain in one, with `part`.
"""

import csv
import re
import sys

LABELS = ["hw", "pcie", "nics", "node_gbits_per_s", "block", "tied_embeddings", "engine", "overlap", "dropout", "partition_activations", "shard_ranks",
          "plan_reason", "mem_upper_bound", "scored", "scored_reason"]

OMNI_PATH_GBITS = 100  # a link of the 100 series

# Family, memory, GPUs of a node, preset; the first of a GPU where no node is as large. A GPU on PCIe, and a network.
GPUS = [("V100", 32, 8, "p3dn"), ("V100", 32, 16, "dgx2"), ("V100", 16, 8, "dgx1"), ("A100", 80, 8, "dgx-a100"),
        ("A100", 40, 8, "p4d"), ("H100", 80, 8, "dgx-h100"), ("H200", 141, 8, "p5en"), ("B200", 180, 8, "p6-b200"),
        ("RTX 3090", 24, 1, "rtx-3090"), ("RTX 4090", 24, 1, "rtx-4090")]
PCIE_GPUS = [("A100", 80, 8, "a100-pcie-80gb"), ("A100", 40, 8, "a100-pcie-40gb"), ("H100", 80, 8, "h100-pcie")]

# The first word that a model's name holds tells its block.
BLOCKS = [("enc", None), ("bert", None), ("t5", None), ("deepseek", None), ("mixtral", None), ("moe", None),
          ("mpt", "mpt"), ("llama", "llama"), ("internlm", "llama"), ("mistral", "llama"), ("qwen", "qwen"),
          ("nemotron", "nemotron"), ("falcon", "falcon"), ("opt-", "opt"), ("gpt", "gpt2"), ("bloom", "gpt2"),
          ("megatron", "gpt2")]
ENCODERS, EXPERTS = ("enc", "bert", "t5"), ("deepseek", "mixtral", "moe")

# Frameworks with kernels, collectives or states of their own, which no engine describes: by source or word.
UNKNOWN_SOURCES = {"nanotron-best": "nanotron", "llm.c": "llm.c", "torchtune": "torchtune",
                   "colossalai": "Colossal-AI"}
UNKNOWN_WORDS = {"bmtrain": "BMTrain", "fairscale": "FairScale"}


def has(text, *words):
    return any(word.lower() in text.lower() for word in words)


def before(date, limit):
    """Whether a date that begins with a year, and perhaps a month, is before `limit`, as far as both are stated."""
    if not re.match(r"\d{4}", date):
        return False
    stated = len(limit) if len(date) >= len(limit) and date[4:5] == "-" else 4
    return date[:stated] < limit[:stated]


def hardware_of(row):
    words = row["gpu_type"] + " " + row["interconnect"]
    memory = float(row["gpu_mem_GB"]) if row["gpu_mem_GB"] else None
    per_node = int(row["gpus_per_node"]) if row["gpus_per_node"] else None

    def find(gpus):
        known = [gpu for gpu in gpus if gpu[0] == row["gpu_family"] and memory in (None, gpu[1])]
        exact = [gpu for gpu in known if per_node in (None, gpu[2])]
        return (exact or known or [(None,) * 4])[0][3]

    if row["gpu_family"] == "V100" and memory in (None, 32) and per_node == 4 and has(row["interconnect"], "Omni-Path"):
        return "jean-zay-v100"  # whose links were measured
    return (has(words, "PCIe") and find(PCIE_GPUS)) or find(GPUS) or ""


def network_of(row):
    """Interfaces of a node, where they are said, and Gbit/s of the node: "8x200 Gb/s HDR IB per node", "400 Gb/s RDMA
    per GPU", "1600 Gbps/node RoCE", "4 Omni-Path links per node"."""
    words = row["interconnect"]
    links = re.search(r"(\d+) *(?:Omni-Path links|links\))", words) if "Omni-Path" in words else None
    if links:
        return links.group(1), str(int(links.group(1)) * OMNI_PATH_GBITS)
    for unit in ("Gb/s", "Gbps", "Gbit/s"):
        rate = re.search(r"(?:(\d+) *x *)?(\d+) *" + unit, words)
        if not rate:
            continue
        if has(words, "per GPU"):
            cards = row["gpus_per_node"] or "8"
        else:
            cards = rate.group(1) or ""
        return cards, str(int(cards or 1) * int(rate.group(2)))
    return "", ""


def engine_of(row):
    """The engine, and why where the source does not name it."""
    sharding, notes, date = row["sharding"], row["notes"], row["date_or_version"]
    stage = int(row["zero_stage"] or 0)
    megatron, deepspeed = has(sharding, "Megatron"), has(sharding, "DeepSpeed")
    if megatron and has(notes, "Megatron 1.1.5"):
        return "megatron-v1", "Megatron-LM 1.1.5 has no fused kernels"
    if megatron and before(date, "2021"):
        return "megatron-v1", "Megatron-LM of before 2021 has no fused kernels (version 2 came at the end of 2020)"
    if deepspeed and before(date, "2021"):
        return "megatron-v1", ("DeepSpeed was run with Megatron-LM before 2021, whose kernels were not fused; "
                               "Hugging Face took it up in 2021")
    if megatron and has(sharding, "FSDP"):
        return "megatron-deepspeed", "Megatron-FSDP runs Megatron's kernels under states that are divided as DeepSpeed's"
    if megatron and stage > 1:
        return "megatron-deepspeed", "Megatron's kernels set the pace under DeepSpeed's states"
    if megatron:
        return "megatron", "Megatron's kernels set the pace" if deepspeed else ""
    if row["source"] == "deepspeed-tutorial":
        return "megatron-v1", "the tutorial runs Megatron-LM of 2020, whose kernels were not fused"
    if deepspeed or has(sharding, "Offload", "Infinity"):
        return "deepspeed", "" if deepspeed else "ZeRO-Offload and ZeRO-Infinity are DeepSpeed's"
    if row["source"] == "llm-foundry":
        return "llm-foundry", ""
    if has(sharding, "FSDP"):
        return "fsdp2", "" if has(sharding, "FSDP2") else "FSDP is described once, as FSDP2"
    if row["source"] == "internevo-tgs":
        return "internevo", ""
    if has(sharding, "DDP") or not sharding:
        return "pytorch", ""
    return "", ""


def refusal_of(row):
    """Why a row says nothing about a plan; empty where it does."""
    sharding, precision, notes = row["sharding"], row["precision"], row["notes"]
    for words, reason in [(("ZeRO++",), "ZeRO++: quantised or hierarchical collectives"),
                          (("DeepCompile",), "a compiled step"), (("Ulysses",), "context parallelism")]:
        if has(sharding, *words):
            return reason
    unknown = UNKNOWN_SOURCES.get(row["source"])
    for word, name in UNKNOWN_WORDS.items():
        if has(sharding, word):
            unknown = name
    if unknown:
        return f"a framework that no engine describes: {unknown}"
    if int(row["tp"] or 1) > 1 and (has(sharding, "sequence parallel", "FSDP2", "Megatron-SP") or
                                    has(notes, "sequence-parallel")):
        return "activations divided over tensor-parallel ranks (sequence parallelism)"
    if has(notes, "liger"):
        return "a fused loss that keeps no logits"
    if row["compile"] == "yes":
        return "a compiled step"
    if has(precision, "pure", "bf16 master") or has(row["optimizer"], "bf16 states"):
        return "16-bit optimizer states"
    if row["gpu_family"] == "mixed":
        return "a mixture of GPUs"
    name = next((name for name, _ in BLOCKS if has(row["model"], name)), "")
    if name in ENCODERS:
        return "an encoder or encoder-decoder model"
    if name in EXPERTS:
        return "experts whose shape has no column"
    return ""


def shard_ranks_of(row):
    """Ranks that states are divided over, where that is not all data-parallel ones."""
    within = re.search(r"within (?:groups of )?(\d+)", row["sharding"])
    if within:
        return within.group(1)
    return row["gpus_per_node"] if has(row["sharding"], "HSDP") else ""


def label(row):
    reasons = []
    refusal = refusal_of(row)
    engine, why = engine_of(row)
    if why:
        reasons.append("engine: " + why)
    if not engine and not refusal:
        refusal = "the framework is not stated"
    overlap = ""
    if row["zero_stage"] == "3" and has(row["sharding"], "DeepSpeed") and before(row["date_or_version"], "2021-07"):
        overlap = "no"
        reasons.append("overlap: DeepSpeed's gathers of stage 3 waited for each other and for the kernels until its "
                       "pull request 1188 of July 2021")
    dropout = "no"
    if has(row["model"], "gpt"):
        dropout = "yes"
        reasons.append("dropout: 0.1 is the default of Megatron-LM's and Hugging Face's GPT-2")
    tied = ""
    if has(row["notes"], "untied", "embeddings=false"):
        tied = "no"
    elif has(row["notes"], "tied embeddings"):
        tied = "yes"
    scored, reason = ("no", refusal) if refusal else ("yes", "")
    if not refusal and row["hidden"] and int(row["hidden"]) < 1024 and has(row["notes"], "launch/comm bound"):
        scored, reason = "memory", "the step of a tiny model waits for its host, and its source was made for memory"
    block = next((block for name, block in BLOCKS if has(row["model"], name)), None)
    nics, gbits = network_of(row)
    row.update({
        "hw": hardware_of(row), "pcie": "yes" if has(row["gpu_type"] + row["interconnect"], "PCIe") else "", "nics": nics, "node_gbits_per_s": gbits, "block": block or "", "tied_embeddings": tied, "engine": "" if refusal else engine,
        "overlap": overlap, "dropout": dropout,
        "partition_activations": "yes" if has(row["notes"], "partitioned activation") else "",
        "shard_ranks": shard_ranks_of(row), "plan_reason": "" if scored == "no" else "; ".join(reasons),
        "mem_upper_bound": "yes" if has(row["mem_detail"], "upper bound") else "",
        "scored": scored, "scored_reason": reason})
    return row


def vtrain_row(row, line):
    """A row of vTrain's files. With full recomputation its runs on one node would execute at up to 226 TFLOPS a GPU
    (docs/accuracy.md), so they are taken as recomputing nothing."""
    single = row["part"] == "single"
    source = "vtrain-" + row["part"]
    return {
        "id": f"{source}-line-{line}", "source": source,
        "source_locator": f"GitHub VIA-Research/vTrain, data/ground_truth_{row['part']}.csv", "date_or_version": "2024",
        "model": "GPT", "params_B": row["params_B"], "layers": row["layers"], "hidden": row["hidden"],
        "ffn": str(4 * int(row["hidden"])), "heads": row["heads"], "kv_heads": row["heads"], "vocab": "50257",
        "seq_len": row["seq_len"], "n_gpus": row["n_gpus"], "gpus_per_node": "8", "gpu_type": "A100-80GB",
        "gpu_family": "A100", "gpu_mem_GB": "80", "interconnect": "NVSwitch; 800 Gbit/s InfiniBand per node",
        "dp": row["dp"], "tp": row["tp"], "pp": row["pp"], "zero_stage": "0", "sharding": "Megatron-LM DDP",
        "micro_batch": row["micro_batch"], "global_batch": row["global_batch"], "precision": "fp16", "optimizer": "Adam",
        "activation_recompute": "none" if single else "full", "flash_attention": "no", "offload": "none",
        "measured_step_time_s": row["step_time_s"], "norm_step_time_s": row["step_time_s"], "outcome": "ok",
        "quality": "A", "derived_fields": "ffn,vocab" + (",activation_recompute" if single else "")}


def main():
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        rows, columns = list(reader), list(reader.fieldnames)
    if "part" in columns:
        rows = [vtrain_row(row, line) for line, row in enumerate(rows, 2)]
        for row in rows:
            row.update({key: "" for key in ("cp", "ep", "grad_accum", "compile", "mem_kind", "mem_detail", "mem_lo_GiB",
                                            "mem_hi_GiB", "notes")})
        columns = list(rows[0])
    columns = [column for column in columns if column not in LABELS] + LABELS
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(label(row))


if __name__ == "__main__":
    main()

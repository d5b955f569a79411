#!/usr/bin/env python3
"""Writes keys.csv: every configuration key that DeepSpeed, accelerate and transformers know, from their sources.

    tests/reference/readers/extract_keys.py          downloads the releases of requirements.txt into build/readers

The packages are read with ast and regular expressions and never imported, so nothing of theirs has to be installed. A row is
package, version, section (of DeepSpeed and accelerate: the map that holds the key, empty at the top; of transformers: the
model type), key, and the default as JSON where the source states one.
"""
import ast
import csv
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parents[2] / "build" / "readers"

# The sections of a DeepSpeed file that zeroplan looks into, and where their keys are declared.
PYDANTIC = {
    "zero_optimization": ("runtime/zero/config.py", "DeepSpeedZeroConfig"),
    "zero_optimization.offload_param": ("runtime/zero/offload_config.py", "DeepSpeedZeroOffloadParamConfig"),
    "zero_optimization.offload_optimizer": ("runtime/zero/offload_config.py", "DeepSpeedZeroOffloadOptimizerConfig"),
    "bf16": ("runtime/precision_config.py", "DeepSpeedBF16Config"),
    "fp16": ("runtime/precision_config.py", "DeepSpeedFP16Config"),
    "tensor_parallel": ("runtime/tensor_parallel/config.py", "TPTrainingConfig"),
}
PREFIXES = {"activation_checkpointing": ("runtime/activation_checkpointing/config.py", "ACT_CHKPT_"),
            "torch_autocast": ("runtime/constants.py", "TORCH_AUTOCAST_")}
DATA_TYPES = ["GRAD_ACCUM_DTYPE", "PARAM_DTYPE", "BUFFER_DTYPE", "KEEP_IN_FP32_MODULES"]

# The families that zeroplan reads, and the folder of each in transformers/models.
FAMILIES = {
    "bloom": "bloom", "codegen": "codegen", "deepseek_v2": "deepseek_v2", "deepseek_v3": "deepseek_v3",
    "falcon": "falcon", "gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3", "glm4_moe": "glm4_moe",
    "gpt2": "gpt2", "gpt_bigcode": "gpt_bigcode", "gpt_neo": "gpt_neo", "gpt_neox": "gpt_neox",
    "gpt_oss": "gpt_oss", "gptj": "gptj", "llama": "llama", "llama4_text": "llama4", "mistral": "mistral",
    "mixtral": "mixtral", "mpt": "mpt", "mt5": "mt5", "olmo2": "olmo2", "opt": "opt", "phi": "phi",
    "phi3": "phi3", "qwen2": "qwen2", "qwen2_moe": "qwen2_moe", "qwen3": "qwen3", "qwen3_moe": "qwen3_moe",
    "starcoder2": "starcoder2", "t5": "t5",
}


def unpack(requirement):
    """The folder of a release's sources."""
    name = requirement.replace("==", "-")
    folder = BUILD / name
    if folder.exists():
        return folder
    binary = "--no-binary" if name.startswith("deepspeed") else "--only-binary"
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", binary, ":all:" if "only" in binary
                    else "deepspeed", "--dest", str(folder) + ".dl", requirement], check=True)
    archive = next(pathlib.Path(str(folder) + ".dl").iterdir())
    if archive.suffix == ".whl":
        zipfile.ZipFile(archive).extractall(folder)
    else:
        tarfile.open(archive).extractall(folder, filter="data")
    return folder


def as_json(node):
    """The value of a literal default as JSON; empty where it is computed."""
    while isinstance(node, ast.Call) and node.args:  # Field(5e8, ...), pp_int(5e8), interval(...)(default=...)
        node = node.args[0]
    if isinstance(node, ast.Call):
        named = [k.value for k in node.keywords if k.arg == "default"]
        node = named[0] if named else None
    try:
        value = ast.literal_eval(node)
        return json.dumps(value)
    except (ValueError, TypeError, SyntaxError):
        return ""


def classes(path):
    return {n.name: n for n in ast.parse(path.read_text()).body if isinstance(n, ast.ClassDef)}


def fields(node):
    """(name, default, aliases) of the annotated fields of a class."""
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or "ClassVar" in ast.dump(item.annotation):
            continue
        aliases = []
        if isinstance(item.value, ast.Call):
            aliases = [k.value.value for k in item.value.keywords if k.arg == "alias"]
        yield item.target.id, as_json(item.value), aliases


def constants(package):
    """Every NAME = "text" at the top of a module, without those that two modules give different texts."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        for item in ast.parse(path.read_text()).body:
            if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str):
                for target in item.targets:
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, set()).add(item.value.value)
    return {name: texts.pop() for name, texts in found.items() if len(texts) == 1}


def deepspeed(folder):
    package = next(folder.glob("deepspeed*")) / "deepspeed" if not (folder / "deepspeed").exists() else folder / "deepspeed"
    names = constants(package)
    top = set()
    word = r"([A-Z][A-Z0-9_]*|\"[a-z0-9_]+\"|'[a-z0-9_]+')"
    patterns = [rf"get_scalar_param\(\s*_?param_dict,\s*{word}", rf"_?param_dict\.get\(\s*{word}", rf"_?param_dict\[\s*{word}\s*\]",
                rf"{word} (?:not )?in _?param_dict\b"]
    for path in sorted((package).rglob("*.py")):
        if path.name == "auto_ep_config.py":  # its param_dict is the section expert_parallel
            continue
        if "_config" in path.name or path.name == "config.py":
            text = path.read_text()
            for pattern in patterns:
                for found in re.findall(pattern, text):
                    top.add(found.strip("\"'") if found[0] in "\"'" else names.get(found))
    config = (package / "runtime/config.py").read_text()
    for item in ast.parse(config).body:
        if isinstance(item, ast.Assign) and item.targets[0].id in ("_REMOVED_TOP_LEVEL_CONFIG_KEYS", "_REMOVED_ZERO_CONFIG_KEYS"):
            keys = [key.value for key in item.value.keys]
            if "TOP" in item.targets[0].id:
                top.update(keys)
            else:
                for key in keys:
                    yield "zero_optimization", key, ""
    # Read by helpers whose argument has another name, or that look a constant of two modules up.
    texts = {text for text in re.findall(r"['\"]([a-z0-9_]+)['\"]", " ".join(
        path.read_text() for path in package.rglob("*.py") if path.name in ("constants.py", "config.py", "precision_config.py")))}
    for name in ["bf16", "bfloat16", "fp16", "zero_optimization", "tensor_parallel", "checkpoint", "comms_logger", "pipeline",
                 "train_micro_batch_size_per_gpu", "communication_data_type", "seq_parallel_communication_data_type"]:
        assert name in texts, name
        top.add(name)
    monitor = classes(package / "monitor/config.py")["DeepSpeedMonitorConfig"]
    top.update(key for key, _, _ in fields(monitor))
    # Inside sections whose whole content has one class, keys such as TYPE are of those sections.
    nested = {"type", "params", "legacy_fusion", "dtype", "enabled", "lower_precision_safe_modules", "throughput",
              "allgather_size", "load_balance_coeff", "data_routing", "data_sampling", "random_ltd", "model_info",
              "writer", "dynamic_batching"}
    for key in sorted(k for k in top if k and k not in nested):
        yield "", key, ""
    for section, (path, name) in PYDANTIC.items():
        for key, default, aliases in fields(classes(package / path)[name]):
            for spelling in [key, *aliases]:
                yield section, spelling, default
    for section, (path, prefix) in PREFIXES.items():
        for key, text in re.findall(rf"^({prefix}[A-Z_0-9]+) = ['\"]([a-z_0-9]+)['\"]", (package / path).read_text(), re.M):
            if not key.endswith("_DEFAULT"):
                yield section, text, ""
    for name in DATA_TYPES:
        yield "data_types", names[name], ""
    pipeline = re.search(r"default_pipeline = (\{.*?\})", config, re.S).group(1)
    for key, default in ast.literal_eval(pipeline).items():
        yield "pipeline", key, json.dumps(default)


def accelerate(folder):
    folder /= "accelerate"
    args = classes(folder / "commands/config/config_args.py")
    for name in ("BaseConfig", "ClusterConfig"):
        for key, default, _ in fields(args[name]):
            yield "", key, default
    text = (folder / "commands/config/cluster.py").read_text()
    for section, key in re.findall(r"(\w+_config)\[\s*\"(\w+)\"\s*\]", text):
        yield section, key, ""
    launch = (folder / "commands/launch.py").read_text()
    for key in re.findall(r"\"--(fsdp_\w+)\"", launch):
        yield "fsdp_config", key, ""
    for key in re.findall(r"\"--(parallelism_config_\w+)\"", launch):
        yield "parallelism_config", key, ""
    for key in re.findall(r"\"--(megatron_lm_\w+)\"", launch):
        yield "megatron_lm_config", key, ""
    group = re.search(r"add_argument_group\(\"DeepSpeed Arguments\".*?add_argument_group\(", launch, re.S).group(0)
    for key in re.findall(r"\"--(\w+)\"", group):
        yield "deepspeed_config", key, ""


def transformers(folder):
    folder /= "transformers"
    common = []
    base = classes(folder / "configuration_utils.py")
    node = base.get("PreTrainedConfig") or base["PretrainedConfig"]
    common += init_arguments(node) or [(k, d) for k, d, _ in fields(node)]
    for model_type, name in FAMILIES.items():
        path = folder / "models" / name / f"configuration_{name}.py"
        if not path.exists():
            continue
        for node in classes(path).values():
            types = [i.value.value for i in node.body if isinstance(i, ast.Assign) and i.targets[0].id == "model_type"]
            if model_type not in types:
                continue
            own = init_arguments(node) or [(k, d) for k, d, _ in fields(node)]
            maps = [i.value for i in node.body if isinstance(i, ast.Assign) and i.targets[0].id == "attribute_map"]
            for attribute_map in maps:
                own += [(k.value, "") for k in attribute_map.keys]
            for key, default in own + common:
                yield model_type, key, default


def init_arguments(node):
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            args = item.args.args[1:]
            defaults = [None] * (len(args) - len(item.args.defaults)) + item.args.defaults
            pairs = list(zip(args, defaults)) + list(zip(item.args.kwonlyargs, item.args.kw_defaults))
            return [(arg.arg, as_json(default)) for arg, default in pairs]
    return []


def main():
    readers = {"deepspeed": deepspeed, "accelerate": accelerate, "transformers": transformers}
    rows = {}
    for line in (HERE / "requirements.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        package, version = line.split("==")
        for section, key, default in readers[package](unpack(line)):
            rows.setdefault((package, version, section, key), default)
    with open(HERE / "keys.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["package", "version", "section", "key", "default"])
        for key, default in sorted(rows.items()):
            writer.writerow([*key, default])


if __name__ == "__main__":
    main()

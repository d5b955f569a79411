#!/usr/bin/env python3
"""Weights from PyTorch into zeroplan, trained, and back: losses and weights against PyTorch's own.

    tests/tools/check_weights.py PROGRAM [--tolerance 1e-5]

PROGRAM is zeroplan. Needs PyTorch and numpy (Debian: python3-torch). For GPT-2, Llama, Mistral and Qwen2 shapes this
makes random weights under the names and in the layouts of transformers (modeling_gpt2.py, modeling_llama.py), writes
them as safetensors with its own writer, lets zeroplan take steps on them and export, and computes the same in PyTorch:
the loss before, after each step, and of what zeroplan exported. Prints a line a case; exit code 0 when all agree.
"""
import argparse
import json
import math
import os
import struct
import subprocess
import tempfile

import numpy
import torch

SEQUENCE, BATCH, STEPS = 16, 2, 3
VOCABULARY, HIDDEN, LAYERS, HEADS, FFN = 300, 32, 3, 4, 48
RATE = 3e-3
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def write_safetensors(path, tensors, dtype="F32"):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        stored = tensor.detach().to(DTYPES[dtype]).contiguous()
        view = stored if dtype == "F32" else stored.view(torch.int16)
        part = view.numpy().tobytes()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    assert header.pop("__metadata__")["format"] == "pt"
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32"
        begin, end = entry["data_offsets"]
        values = numpy.frombuffer(data[begin:end], dtype="<f4").reshape(entry["shape"])
        tensors[name] = torch.tensor(values)
    return tensors


def gpt2_weights():
    shapes = {"transformer.wte.weight": (VOCABULARY, HIDDEN), "transformer.wpe.weight": (SEQUENCE, HIDDEN)}
    for i in range(LAYERS):
        layer = f"transformer.h.{i}."
        for norm in ("ln_1", "ln_2"):
            shapes[f"{layer}{norm}.weight"] = shapes[f"{layer}{norm}.bias"] = (HIDDEN,)
        for name, inputs, outputs in (("attn.c_attn", HIDDEN, 3 * HIDDEN), ("attn.c_proj", HIDDEN, HIDDEN),
                                      ("mlp.c_fc", HIDDEN, FFN), ("mlp.c_proj", FFN, HIDDEN)):
            shapes[f"{layer}{name}.weight"], shapes[f"{layer}{name}.bias"] = (inputs, outputs), (outputs,)
    shapes["transformer.ln_f.weight"] = shapes["transformer.ln_f.bias"] = (HIDDEN,)
    return drawn(shapes)


def llama_weights(kv_heads, tied=False, qkv_bias=False):
    key_width = HIDDEN // HEADS * kv_heads
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        shapes[f"{layer}input_layernorm.weight"] = shapes[f"{layer}post_attention_layernorm.weight"] = (HIDDEN,)
        for name, outputs in (("q_proj", HIDDEN), ("k_proj", key_width), ("v_proj", key_width), ("o_proj", HIDDEN)):
            shapes[f"{layer}self_attn.{name}.weight"] = (outputs, HIDDEN)
            if qkv_bias and name != "o_proj":
                shapes[f"{layer}self_attn.{name}.bias"] = (outputs,)
        shapes[f"{layer}mlp.gate_proj.weight"] = shapes[f"{layer}mlp.up_proj.weight"] = (FFN, HIDDEN)
        shapes[f"{layer}mlp.down_proj.weight"] = (HIDDEN, FFN)
    shapes["model.norm.weight"] = (HIDDEN,)
    if not tied:
        shapes["lm_head.weight"] = (VOCABULARY, HIDDEN)
    return drawn(shapes)


def drawn(shapes):
    def values(name, shape):
        is_norm = name.endswith("weight") and len(shape) == 1
        return torch.randn(shape) * 0.1 + (1.0 if is_norm else 0.0)

    return {name: values(name, shape) for name, shape in shapes.items()}


def attention(q, k, v):
    """{batch, heads, sequence, head_dim} each; causal."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def heads_of(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gpt2_logits(w, tokens, activation=gelu_new):
    norm = lambda x, name: torch.nn.functional.layer_norm(x, (HIDDEN,), w[name + ".weight"], w[name + ".bias"], 1e-5)
    conv = lambda x, name: x @ w[name + ".weight"] + w[name + ".bias"]  # Conv1D
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][: tokens.shape[1]]
    for i in range(LAYERS):
        h = f"transformer.h.{i}."
        q, k, v = conv(norm(x, h + "ln_1"), h + "attn.c_attn").split(HIDDEN, dim=2)
        x = x + conv(joined(attention(heads_of(q, HEADS), heads_of(k, HEADS), heads_of(v, HEADS))), h + "attn.c_proj")
        x = x + conv(activation(conv(norm(x, h + "ln_2"), h + "mlp.c_fc")), h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].t()


def llama_logits(w, tokens, kv_heads):
    def norm(x, name):
        return w[name + ".weight"] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    def linear(x, name):
        return torch.nn.functional.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    head_dim = HIDDEN // HEADS
    frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.arange(tokens.shape[1]).float()[:, None] * frequencies
    cos, sin = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()

    def turned(x):
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin  # rotate_half

    x = w["model.embed_tokens.weight"][tokens]
    for i in range(LAYERS):
        h = f"model.layers.{i}."
        y = norm(x, h + "input_layernorm")
        q, k, v = (linear(y, f"{h}self_attn.{n}_proj") for n in "qkv")
        q, k, v = turned(heads_of(q, HEADS)), turned(heads_of(k, kv_heads)), heads_of(v, kv_heads)
        k, v = (t.repeat_interleave(HEADS // kv_heads, dim=1) for t in (k, v))
        x = x + linear(joined(attention(q, k, v)), h + "self_attn.o_proj")
        y = norm(x, h + "post_attention_layernorm")
        x = x + linear(torch.nn.functional.silu(linear(y, h + "mlp.gate_proj")) * linear(y, h + "mlp.up_proj"),
                       h + "mlp.down_proj")
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return norm(x, "model.norm") @ head.t()


def batch_of(tokens, step):
    inputs, targets = [], []
    for i in range(step * BATCH, (step + 1) * BATCH):
        part = tokens[i * SEQUENCE : (i + 1) * SEQUENCE + 1]
        inputs.append(part[:-1])
        targets.append(part[1:])
    return torch.stack(inputs), torch.stack(targets)


def loss_of(logits, weights, tokens, step):
    inputs, targets = batch_of(tokens, step)
    return torch.nn.functional.cross_entropy(logits(weights, inputs).reshape(-1, VOCABULARY), targets.reshape(-1))


def pytorch_losses(logits, weights, tokens):
    weights = {name: value.clone().requires_grad_() for name, value in weights.items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=RATE, weight_decay=0.0)
    losses = []
    for step in range(STEPS + 1):
        loss = loss_of(logits, weights, tokens, step)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def llama_config(kind, **changes):
    config = {"model_type": kind, "architectures": [kind.capitalize() + "ForCausalLM"], "hidden_size": HIDDEN,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
              "intermediate_size": FFN, "vocab_size": VOCABULARY, "max_position_embeddings": 64, "hidden_act": "silu",
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
    return {**config, **changes}


def cases():
    gpt2 = f"layers={LAYERS},hidden={HIDDEN},heads={HEADS},vocab={VOCABULARY},ffn={FFN}"
    yield "GPT-2", gpt2, gpt2_weights(), gpt2_logits, "F32", ""
    yield "GPT-2, names without transformer.", gpt2, gpt2_weights(), gpt2_logits, "F32", "bare"
    yield "GPT-2, BF16 in three files", gpt2, gpt2_weights(), gpt2_logits, "BF16", "sharded"
    exact = {"model_type": "gpt2", "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_inner": FFN,
             "vocab_size": VOCABULARY, "n_positions": SEQUENCE, "activation_function": "gelu"}
    yield ("GPT-2 with the exact GELU", exact, gpt2_weights(),
           lambda w, t: gpt2_logits(w, t, torch.nn.functional.gelu), "F32", "")
    llama = llama_config("llama")
    yield "Llama", llama, llama_weights(HEADS), lambda w, t: llama_logits(w, t, HEADS), "F32", ""
    mistral = llama_config("mistral", num_key_value_heads=2, sliding_window=None)
    yield "Mistral, F16", mistral, llama_weights(2), lambda w, t: llama_logits(w, t, 2), "F16", ""
    qwen2 = llama_config("qwen2", num_key_value_heads=2, tie_word_embeddings=True, use_sliding_window=False)
    yield ("Qwen2, tied, in three files", qwen2, llama_weights(2, tied=True, qkv_bias=True),
           lambda w, t: llama_logits(w, t, 2), "F32", "sharded")


def store(folder, weights, dtype, how):
    """Writes the weights; the path to give to --weights."""
    if how == "bare":
        weights = {name.replace("transformer.", ""): value for name, value in weights.items()}
    if how != "sharded":
        path = os.path.join(folder, "model.safetensors")
        write_safetensors(path, weights, dtype)
        return path
    index = {}
    for part in range(3):
        file = f"model-0000{part + 1}-of-00003.safetensors"
        own = {name: value for i, (name, value) in enumerate(weights.items()) if i % 3 == part}
        write_safetensors(os.path.join(folder, file), own, dtype)
        index.update({name: file for name in own})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": index}, file)
    return folder


def zeroplan(program, model, data, *options):
    command = [program, "validate", model, "--seq", str(SEQUENCE), "--dtype", "fp32", "--data", data, "--shuffle=off",
               "--rate", str(RATE), "--weight-decay", "0", "--clip", "0", "--warm-up", "0", "--steps", str(STEPS), "-o",
               "json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return [step["loss"] for step in json.loads(done.stdout)["measured"]["steps"]]


LAYOUTS = [["--micro-batch", str(BATCH)], ["--gpus", "4", "--tp", "2", "--zero", "3", "--micro-batch", "1"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    options = parser.parse_args()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    program = os.path.abspath(options.program)
    worst = 0.0
    for title, model, weights, logits, dtype, how in cases():
        with tempfile.TemporaryDirectory() as folder:
            tokens = torch.randint(VOCABULARY, ((STEPS + 1) * BATCH * SEQUENCE + 1,))
            data = os.path.join(folder, "tokens.bin")
            tokens.numpy().astype("<u2").tofile(data)
            if isinstance(model, dict):
                with open(os.path.join(folder, "config.json"), "w") as file:
                    json.dump(model, file)
                model = os.path.join(folder, "config.json")
            given = store(folder, weights, dtype, how)
            rounded = {name: value.to(DTYPES[dtype]).float() for name, value in weights.items()}
            expected = pytorch_losses(logits, rounded, tokens)
            for layout in LAYOUTS:
                exported = os.path.join(folder, "out.safetensors")
                losses = zeroplan(program, model, data, "--weights", given, "--export", exported, *layout)
                back = read_safetensors(exported)
                assert set(back) == set(weights), set(back) ^ set(weights)
                assert all(back[name].shape == value.shape for name, value in weights.items())
                losses.append(loss_of(logits, back, tokens, STEPS).item())
                difference = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
                worst = max(worst, difference)
                print(f"{title}, {' '.join(layout)}: losses {expected[0]:.4f} to {expected[-1]:.4f}, largest relative "
                      f"difference {difference:.1e}")
    print(f"largest of all: {worst:.1e}, tolerance {options.tolerance:g}")
    raise SystemExit(0 if worst <= options.tolerance else 1)


if __name__ == "__main__":
    main()

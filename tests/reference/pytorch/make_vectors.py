#!/usr/bin/python3
"""Losses, gradients and weights of small models by PyTorch, for tests/executor/pytorch_test.cpp.

    python3 tests/reference/pytorch/make_vectors.py            write the files beside this script
    python3 tests/reference/pytorch/make_vectors.py --check    compare them with what would be written; exit 1 if they differ

Made with PyTorch 1.13 (Debian 12's python3-torch, run with /usr/bin/python3).

Everything is computed in float64 and written with 8 digits: the vectors are the truth to more than fp32 can hold, so
the whole tolerance of the test is left to the code that is tested. (PyTorch in float32 is itself off by up to 1.1e-6 of
a tensor's largest gradient on these models.)

Weights and tokens are drawn by `draw`, which the test repeats, and are exact in fp32. Names, shapes {outputs, inputs}
and the order of a tensor's elements are zeroplan's (planner/describe/model/parameters.cpp).

MODEL.gradients.txt    loss, gradient norm and every gradient of the first step
MODEL.training.txt     of gpt, llama and gpt_dropout only: losses and gradient norms of 4 steps with clipping and AdamW, and weights after 3 of them: of layer
                       1 and of what is in no layer. Adam's epsilon is 1e-3, not 1e-8: without it the step of an element
                       whose gradient is rounding noise is noise too, of the size of the learning rate.

MODEL.schedule.txt     losses, gradient norms and learning rates of 6 such steps with a warm-up of 2 and then cosine or linear decay
                       (PyTorch's own schedulers), other betas and epsilon, and weight decay on matrices only: not on biases
                       and norms, as GPT-2's and Llama's trainers have it. Weights after 5 of them, with the cosine.

The models with dropout have masks of their own: this script draws them by a Philox generator of its own, by the keys and
numbers that executor/dropout.hpp says, for the whole batch at once, whatever ranks and micro-batches it is divided into.

A file is a list of tensors: a line "name layer outputs inputs" and then its values row by row. "#" starts a comment.
"""

import pathlib
import sys

import torch
from philox import kept_elements
from torch.nn.functional import cross_entropy, embedding, gelu, layer_norm, linear, relu, silu

FOLDER = pathlib.Path(__file__).parent
BATCH, SEQUENCE, VOCABULARY = 6, 10, 37
STEPS = 4
LEARNING_RATE, BETAS, ADAM_EPSILON, WEIGHT_DECAY, CLIP_NORM = 4e-3, (0.9, 0.95), 1e-3, 0.1, 1.0
SCHEDULE_STEPS, WARM_UP, MINIMUM_RATE = 6, 2, 1e-3
DROPOUT, DROPOUT_SEED = torch.tensor(0.1, dtype=torch.float32).item(), 2**40 + 17
SCHEDULE_BETAS, SCHEDULE_EPSILON, SCHEDULE_WEIGHT_DECAY = (0.8, 0.97), 2e-3, 0.3

# What a model may say beside its sizes, with what it is when left out. Names are those of docs/models.md.
PLAIN = {
    "norm": "rms_norm", "biases": False, "gated": True, "activation": "silu", "position": "rotary", "tied": False,
    "norms_per_layer": 2, "parallel_block": False, "embedding_width": 0, "norm_epsilon": 1e-5, "norm_weight_offset": 0,
    "scaled_embeddings": False, "attention_scale_dim": 0, "attention_soft_cap": 0, "logits_soft_cap": 0,
    "rotary_base": 10000.0, "rotary_fraction": 1, "rotary_scaling": None, "window_base": 0, "windows_only": False,
    "query_key_norm": "none", "norm_placement": "before", "window": None, "window_size": 0, "full_every": 0,
    "dropout": "none",
}
GPT_BLOCK = {"norm": "layer_norm", "biases": True, "gated": False, "activation": "gelu_tanh", "position": "learned",
             "tied": True}
GPT = PLAIN | GPT_BLOCK | {
    "name": "gpt", "hidden": 20, "layers": 3, "heads": 4, "kv_heads": 4, "head_dim": 5, "ffn": 54}
LLAMA = PLAIN | {"name": "llama", "hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 48}
SMALL = {"hidden": 16, "layers": 3, "heads": 4, "kv_heads": 4, "head_dim": 8, "ffn": 24}
# Gemma 2 and 3: windows by turns with a base of their own, caps, scales, norms on both sides.
GEMMA = PLAIN | SMALL | {
    "name": "gemma", "kv_heads": 2, "activation": "gelu_tanh", "tied": True, "norms_per_layer": 4, "norm_epsilon": 1e-6,
    "norm_weight_offset": 1, "scaled_embeddings": True, "attention_scale_dim": 5, "attention_soft_cap": 0.5,
    "logits_soft_cap": 0.75, "rotary_base": 500000.0, "window_base": 100.0, "window": "sliding", "window_size": 4,
    "full_every": 2}
# Pythia's parallel block, exact GELU and partial rotary positions, with Llama 3's scaling of them, in Llama 4's chunks.
NEOX = PLAIN | GPT_BLOCK | SMALL | {
    "name": "neox", "activation": "gelu", "position": "rotary", "tied": False, "parallel_block": True, "norm_epsilon": 1e-3,
    "rotary_fraction": 0.5, "rotary_base": 50.0, "rotary_scaling": ("llama3", 8.0, 1.0, 4.0, 24), "windows_only": True,
    "window": "chunked", "window_size": 4, "full_every": 3}
# BLOOM's ALiBi, of a number of heads that is no power of two.
BLOOM = PLAIN | GPT_BLOCK | SMALL | {"name": "bloom", "position": "alibi", "heads": 6, "kv_heads": 6, "head_dim": 4}
# The narrow table of OPT-350M with its projections, and learned positions behind them.
OPT = PLAIN | GPT_BLOCK | SMALL | {"name": "opt", "embedding_width": 6, "activation": "relu", "norm_epsilon": 1e-6}
# Mistral's windows in every layer, with positions scaled as in longer Gemma 3.
MISTRAL = PLAIN | SMALL | {
    "name": "mistral", "kv_heads": 2, "rotary_scaling": ("linear", 8.0), "window": "sliding", "window_size": 3}
# Norms over heads: of each, as Qwen 3 has them, and over all, with norms on the branches alone, as OLMo 2 has.
QWEN = PLAIN | SMALL | {"name": "qwen", "layers": 2, "kv_heads": 2, "query_key_norm": "head"}
OLMO = PLAIN | SMALL | {"name": "olmo", "layers": 2, "query_key_norm": "full", "norm_placement": "branch"}
# Dropout as GPT-2 has it: of the embeddings, of what each branch adds, and of attention's probabilities; and without the last,
# which kernels that never have the probabilities in memory do not do.
GPT_DROPOUT = GPT | {"name": "gpt_dropout", "dropout": "all"}
GPT_HIDDEN_DROPOUT = GPT | {"name": "gpt_hidden_dropout", "dropout": "hidden"}
LLAMA_DROPOUT = LLAMA | {"name": "llama_dropout", "dropout": "all"}
MODELS = (GPT, LLAMA, GEMMA, NEOX, BLOOM, OPT, MISTRAL, QWEN, OLMO, GPT_DROPOUT, GPT_HIDDEN_DROPOUT, LLAMA_DROPOUT)


def draw(name, *parts):
    """A 32-bit hash of a name and some counters: FNV-1a over the name, then multiply and shift for each counter."""
    state = 2166136261
    for byte in name.encode():
        state = (state ^ byte) * 16777619 % 2**32
    for part in parts:
        state = (state ^ part) * 0x9E3779B1 % 2**32
        state ^= state >> 15
    return state


def initial_value(name, layer, output, column):
    """In [-1/4, 1/4) in steps of 2^-17; a norm's weight lies that far from 1."""
    centre = 1.0 if "norm" in name and name.endswith(".weight") else 0.0
    return centre + ((draw(name, layer, output, column) >> 16) - 2**15) * 2.0**-17


def batch(step):
    """Tokens and targets {BATCH, SEQUENCE}: a target is the token that comes next."""
    drawn = [[draw("tokens", step, s, i) % VOCABULARY for i in range(SEQUENCE + 1)] for s in range(BATCH)]
    tokens = torch.tensor(drawn)
    return tokens[:, :-1], tokens[:, 1:]


def shapes(model):
    """{(name, layer): (outputs, inputs)}; vectors have one input."""
    hidden, ffn = model["hidden"], model["ffn"]
    width = model["embedding_width"] or hidden
    query, key = model["heads"] * model["head_dim"], model["kv_heads"] * model["head_dim"]
    result = {("embedding.token", 0): (VOCABULARY, width)}
    if width != hidden:
        result["embedding.projection.weight", 0] = (hidden, width)
    if model["position"] == "learned":
        result["embedding.position", 0] = (SEQUENCE, hidden)

    def add(name, layer, outputs, inputs):
        result[name + ".weight", layer] = (outputs, inputs)
        if model["biases"]:
            result[name + ".bias", layer] = (outputs, 1)

    for layer in range(model["layers"]):
        add("attention_norm", layer, hidden, 1)
        add("attention.query", layer, query, hidden)
        add("attention.key", layer, key, hidden)
        add("attention.value", layer, key, hidden)
        if model["query_key_norm"] != "none":
            full = model["query_key_norm"] == "full"
            result["attention.query_norm.weight", layer] = (query if full else model["head_dim"], 1)
            result["attention.key_norm.weight", layer] = (key if full else model["head_dim"], 1)
        add("attention.output", layer, hidden, query)
        if model["norms_per_layer"] == 4:
            add("attention_output_norm", layer, hidden, 1)
        add("mlp_norm", layer, hidden, 1)
        add("mlp.up", layer, ffn, hidden)
        if model["gated"]:
            add("mlp.gate", layer, ffn, hidden)
        add("mlp.down", layer, hidden, ffn)
        if model["norms_per_layer"] == 4:
            add("mlp_output_norm", layer, hidden, 1)
    add("final_norm", 0, hidden, 1)
    if width != hidden:
        result["head.projection.weight", 0] = (width, hidden)
    if not model["tied"]:
        result["head.weight", 0] = (VOCABULARY, width)
    return result


def initial_weights(model):
    weights = {}
    for (name, layer), (outputs, inputs) in shapes(model).items():
        values = [[initial_value(name, layer, o, i) for i in range(inputs)] for o in range(outputs)]
        tensor = torch.tensor(values, dtype=torch.float64)
        weights[name, layer] = (tensor.squeeze(1) if inputs == 1 else tensor).requires_grad_()
    return weights


def scaled(frequencies, scaling):
    """Of longer sequences: arXiv 2306.15595, and Llama 3's form as transformers has it (modeling_rope_utils.py)."""
    if scaling is None:
        return frequencies
    if scaling[0] == "linear":
        return frequencies / scaling[1]
    _, factor, low, high, original = scaling
    wavelengths = 2 * torch.pi / frequencies
    smooth = (original / wavelengths - low) / (high - low)
    blend = (1 - smooth) * frequencies / factor + smooth * frequencies
    result = torch.where(wavelengths > original / low, frequencies / factor, blend)
    return torch.where(wavelengths < original / high, frequencies, result)


def rotated(x, dims, base, scaling):
    """Rotary positions: of the first `dims` elements of a head, i is turned with i + dims / 2.

    x: {batch, heads, sequence, head_dim}."""
    half = dims // 2
    frequencies = scaled(base ** (-torch.arange(half, dtype=x.dtype) / half), scaling)
    angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * frequencies
    a, b, rest = x[..., :half], x[..., half:dims], x[..., dims:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin(), rest], dim=-1)


def slopes(heads):
    """ALiBi's, as the authors' code has them (ofirpress/attention_with_linear_biases)."""
    if heads & (heads - 1) == 0:
        return [2.0 ** (-8 * (k + 1) / heads) for k in range(heads)]
    power = 1 << (heads.bit_length() - 1)
    return slopes(power) + slopes(2 * power)[0::2][: heads - power]


def is_windowed(model, layer):
    return model["window"] is not None and not (model["full_every"] and (layer + 1) % model["full_every"] == 0)


def hidden_keys(model, layer):
    """{queries, keys}: True where a key is not seen."""
    query, key = torch.arange(SEQUENCE)[:, None], torch.arange(SEQUENCE)[None, :]
    unseen = key > query
    if is_windowed(model, layer):
        size = model["window_size"]
        far = query - key >= size if model["window"] == "sliding" else key // size != query // size
        unseen = unseen | far
    return unseen


def soft_capped(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


def loss_of(model, weights, step):
    """Of the step's batch; steps are numbered from 0 here, and from 1 where masks are drawn."""
    tokens, targets = batch(step)
    epsilon = model["norm_epsilon"]

    def dropped(mask, layer, x):
        if model["dropout"] == "none" or (model["dropout"] == "hidden" and mask == "attention.dropout_mask"):
            return x
        kept = kept_elements(DROPOUT_SEED, mask, layer, step + 1, x.numel(), DROPOUT)
        return x * torch.tensor(kept, dtype=x.dtype).view_as(x) / (1 - DROPOUT)

    def norm(name, layer, x):
        weight = model["norm_weight_offset"] + weights[name + ".weight", layer]
        if model["norm"] == "layer_norm":
            return layer_norm(x, (model["hidden"],), weight, weights[name + ".bias", layer], epsilon)
        return x * (x.pow(2).mean(-1, keepdim=True) + epsilon).rsqrt() * weight

    def project(name, layer, x):
        return linear(x, weights[name + ".weight", layer], weights.get((name + ".bias", layer)))

    def root_mean_square(name, layer, x):
        return x * (x.pow(2).mean(-1, keepdim=True) + epsilon).rsqrt() * weights[name + "_norm.weight", layer]

    def heads(name, layer, x):
        y = project(name, layer, x)
        kind = "none" if name == "attention.value" else model["query_key_norm"]
        if kind == "full":
            y = root_mean_square(name, layer, y)
        y = y.unflatten(-1, (-1, model["head_dim"])).transpose(1, 2)
        return root_mean_square(name, layer, y) if kind == "head" else y

    def positioned(layer, x):
        windowed = is_windowed(model, layer)
        if model["position"] != "rotary" or (model["windows_only"] and not windowed):
            return x
        own = windowed and model["window_base"]
        base, scaling = (model["window_base"], None) if own else (model["rotary_base"], model["rotary_scaling"])
        return rotated(x, int(model["head_dim"] * model["rotary_fraction"]), base, scaling)

    def attention(layer, x):
        query, key, value = (heads("attention." + part, layer, x) for part in ("query", "key", "value"))
        query, key = positioned(layer, query), positioned(layer, key)
        group = model["heads"] // model["kv_heads"]
        key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
        scores = query @ key.transpose(-1, -2) / (model["attention_scale_dim"] or model["head_dim"]) ** 0.5
        scores = soft_capped(scores, model["attention_soft_cap"])
        if model["position"] == "alibi":
            slope = torch.tensor(slopes(model["heads"]), dtype=x.dtype)[:, None, None]
            scores = scores + slope * torch.arange(SEQUENCE, dtype=x.dtype)
        probabilities = scores.masked_fill(hidden_keys(model, layer), float("-inf")).softmax(-1)
        probabilities = dropped("attention.dropout_mask", layer, probabilities)
        return project("attention.output", layer, (probabilities @ value).transpose(1, 2).flatten(-2))

    def activation(x):
        if model["activation"].startswith("gelu"):
            return gelu(x, approximate="tanh" if model["activation"] == "gelu_tanh" else "none")
        return silu(x) if model["activation"] == "silu" else relu(x)

    def mlp(layer, x):
        up = project("mlp.up", layer, x)
        inner = up * activation(project("mlp.gate", layer, x)) if model["gated"] else activation(up)
        return project("mlp.down", layer, inner)

    def before(name, layer, x):
        return x if model["norm_placement"] == "branch" else norm(name + "_norm", layer, x)

    def branch(name, layer, x):
        if model["norm_placement"] == "branch":
            return norm(name + "_norm", layer, x)
        return norm(name + "_output_norm", layer, x) if model["norms_per_layer"] == 4 else x

    x = embedding(tokens, weights["embedding.token", 0])
    if model["scaled_embeddings"]:
        x = x * model["hidden"] ** 0.5
    if model["embedding_width"]:
        x = linear(x, weights["embedding.projection.weight", 0])
    if model["position"] == "learned":
        x = x + weights["embedding.position", 0]
    x = dropped("embedding.mask", 0, x)
    for layer in range(model["layers"]):
        added = branch("attention", layer, attention(layer, before("attention", layer, x)))
        middle = x + dropped("attention.hidden_mask", layer, added)
        before_mlp = x if model["parallel_block"] else middle
        added = branch("mlp", layer, mlp(layer, before("mlp", layer, before_mlp)))
        x = middle + dropped("mlp.hidden_mask", layer, added)
    x = norm("final_norm", 0, x)
    if model["embedding_width"]:
        x = linear(x, weights["head.projection.weight", 0])
    logits = soft_capped(linear(x, weights["embedding.token" if model["tied"] else "head.weight", 0]),
                         model["logits_soft_cap"])
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


def text_of(name, layer, tensor):
    rows = tensor.detach().reshape(tensor.shape[0], -1)
    lines = [f"{name} {layer} {rows.shape[0]} {rows.shape[1]}"]
    values = [f"{value:.7e}" for value in rows.flatten().tolist()]
    lines += [" ".join(values[i : i + 7]) for i in range(0, len(values), 7)]
    return "\n".join(lines) + "\n"


def scalar_text(name, *values):
    return text_of(name, 0, torch.tensor(values, dtype=torch.float64))


def header(model, what):
    said = {key: value for key, value in model.items() if key not in PLAIN or (key not in GPT_BLOCK and value != PLAIN[key])}
    sizes = ", ".join(f"{key} {value}" for key, value in said.items())
    return (
        f"# {what}\n# {sizes}, vocabulary {VOCABULARY}, sequence {SEQUENCE}, batch {BATCH}\n"
        "# Written by make_vectors.py, which says what this is.\n"
    )


def gradients_text(model):
    weights = initial_weights(model)
    loss = loss_of(model, weights, 0)
    loss.backward()
    norm = torch.sqrt(sum(weight.grad.pow(2).sum() for weight in weights.values()))
    text = header(model, "Gradients of the first step")
    text += scalar_text("loss", loss.item()) + scalar_text("gradient_norm", norm.item())
    return text + "".join(text_of(*key, weight.grad) for key, weight in weights.items())


def training_text(model):
    weights = initial_weights(model)
    optimizer = torch.optim.AdamW(
        weights.values(), lr=LEARNING_RATE, betas=BETAS, eps=ADAM_EPSILON, weight_decay=WEIGHT_DECAY
    )
    losses, norms = [], []
    trained = ""
    for step in range(STEPS):
        if step == STEPS - 1:
            for (name, layer), weight in weights.items():
                if layer == 1 or not name.startswith(("attention", "mlp")):
                    trained += text_of(name, layer, weight)
        optimizer.zero_grad()
        loss = loss_of(model, weights, step)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), CLIP_NORM).item())
        optimizer.step()
        losses.append(loss.item())
    text = header(model, f"{STEPS} steps of AdamW, and the weights after {STEPS - 1}")
    text += scalar_text("learning_rate", LEARNING_RATE) + scalar_text("betas", *BETAS)
    text += scalar_text("epsilon", ADAM_EPSILON) + scalar_text("weight_decay", WEIGHT_DECAY)
    text += scalar_text("clip_norm", CLIP_NORM)
    text += scalar_text("losses", *losses) + scalar_text("gradient_norms", *norms)
    return text + trained


def scheduler_of(optimizer, decay):
    """Each from PyTorch; the second begins at the full rate, as LinearLR's last factor is 1."""
    schedulers = torch.optim.lr_scheduler
    warm_up = schedulers.LinearLR(optimizer, start_factor=1 / WARM_UP, total_iters=WARM_UP - 1)
    rest = SCHEDULE_STEPS - WARM_UP
    if decay == "cosine":
        fall = schedulers.CosineAnnealingLR(optimizer, T_max=rest, eta_min=MINIMUM_RATE)
    else:
        fall = schedulers.LinearLR(optimizer, 1.0, end_factor=MINIMUM_RATE / LEARNING_RATE, total_iters=rest)
    return schedulers.SequentialLR(optimizer, [warm_up, fall], milestones=[WARM_UP])


def schedule_text(model):
    text = header(model, f"{SCHEDULE_STEPS} steps with schedules of the rate and decay of matrices only")
    text += scalar_text("learning_rate", LEARNING_RATE) + scalar_text("betas", *SCHEDULE_BETAS)
    text += scalar_text("epsilon", SCHEDULE_EPSILON) + scalar_text("weight_decay", SCHEDULE_WEIGHT_DECAY)
    text += scalar_text("clip_norm", CLIP_NORM) + scalar_text("warm_up", WARM_UP)
    text += scalar_text("minimum_rate", MINIMUM_RATE)
    trained = ""
    for decay in ("cosine", "linear"):
        weights = initial_weights(model)
        matrices = [weight for weight in weights.values() if weight.dim() > 1]
        vectors = [weight for weight in weights.values() if weight.dim() == 1]
        optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": SCHEDULE_WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}],
            lr=LEARNING_RATE, betas=SCHEDULE_BETAS, eps=SCHEDULE_EPSILON,
        )
        scheduler = scheduler_of(optimizer, decay)
        losses, norms, rates = [], [], []
        for step in range(SCHEDULE_STEPS):
            if decay == "cosine" and step == SCHEDULE_STEPS - 1:
                for (name, layer), weight in weights.items():
                    if layer == 1 or not name.startswith(("attention", "mlp")):
                        trained += text_of(name, layer, weight)
            optimizer.zero_grad()
            loss = loss_of(model, weights, step)
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(weights.values(), CLIP_NORM).item())
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        text += scalar_text(f"{decay}.losses", *losses) + scalar_text(f"{decay}.gradient_norms", *norms)
        text += scalar_text(f"{decay}.rates", *rates)
    return text + trained


def tensors_in(text):
    """{heading: values} of a file."""
    result = {}
    values = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line[0].isalpha():
            values = result[line] = []
        else:
            values.extend(float(word) for word in line.split())
    return result


def largest_difference(written, made):
    """Of any value, relative to the largest of its tensor; None where the tensors are not the same ones."""
    written, made = tensors_in(written), tensors_in(made)
    if [(key, len(values)) for key, values in written.items()] != [(key, len(values)) for key, values in made.items()]:
        return None
    largest = 0.0
    for key, values in made.items():
        scale = max(map(abs, values))
        if "attention.key.bias" in key:
            continue  # exactly 0 but for rounding: a softmax does not see what all its scores share
        largest = max(largest, max(abs(a - b) for a, b in zip(values, written[key])) / scale)
    return largest


def check(path, made):
    """True where `path` holds `made`, but for the last digit, which another processor may round otherwise."""
    written = path.read_text() if path.exists() else ""
    if written == made:
        print(f"{path.name}: the same text")
        return True
    difference = largest_difference(written, made)
    good = difference is not None and difference <= 1e-7
    print(f"{path.name}: " + ("other tensors" if difference is None else f"differs by up to {difference:.1e}"))
    return good


def main():
    good = True
    for model in MODELS:
        texts = {"gradients": gradients_text(model)}
        if model in (GPT, LLAMA, GPT_DROPOUT):
            texts["training"] = training_text(model)
        if model in (GPT, LLAMA):
            texts["schedule"] = schedule_text(model)
        for kind, text in texts.items():
            path = FOLDER / f"{model['name']}.{kind}.txt"
            if "--check" in sys.argv[1:]:
                good = check(path, text) and good
            else:
                path.write_text(text)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""Times training steps of GPT-2 124M in PyTorch: forward, backward and AdamW in fp32, tied embeddings, no dropout.

Prints the seconds of each measured step and its processor seconds of all threads, one step a line; warm-up steps come first and are not printed. A decent eager-mode
implementation: one product for queries, keys and values, gradients released before each step, AdamW over lists of tensors.
"""
import argparse
import os
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, POSITIONS, HIDDEN, HEADS, LAYERS = 50257, 1024, 768, 12, 12


class Block(nn.Module):
    def __init__(self, sequence):
        super().__init__()
        self.attention_norm = nn.LayerNorm(HIDDEN)
        self.packed = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.output = nn.Linear(HIDDEN, HIDDEN)
        self.mlp_norm = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.down = nn.Linear(4 * HIDDEN, HIDDEN)
        mask = torch.full((sequence, sequence), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def attention(self, x):
        batch, sequence, _ = x.shape
        packed = self.packed(x).view(batch, sequence, 3, HEADS, HIDDEN // HEADS)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) * (HIDDEN // HEADS) ** -0.5
        context = F.softmax(scores + self.mask, dim=-1) @ value
        return self.output(context.transpose(1, 2).reshape(batch, sequence, HIDDEN))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, sequence):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(POSITIONS, HIDDEN)
        self.blocks = nn.ModuleList(Block(sequence) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = Gpt2(options.sequence)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, foreach=True)
    for step in range(options.warm_up + options.steps):
        tokens = torch.randint(VOCABULARY, (options.batch, options.sequence + 1))
        start, processor = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        loss = model(tokens[:, :-1], tokens[:, 1:].contiguous())
        loss.backward()
        optimizer.step()
        loss.item()
        if step >= options.warm_up:
            print(f"{time.perf_counter() - start:.4f} {time.process_time() - processor:.4f}", flush=True)


if __name__ == "__main__":
    main()

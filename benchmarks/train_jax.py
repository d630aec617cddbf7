"""The same MLP and GPT steps in plain JAX, as another program that ends in XLA.

    python -m benchmarks.train_jax --model gpt2 --turns 10

Sizes as in benchmarks/models.py; AdamW with donated state. Prints one JSON object, as
benchmarks/train.py does.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import os
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
from jax import numpy as jnp

from benchmarks import turns
from benchmarks.memory import peak_memory, reset_peak_memory
from benchmarks.times import Times

GPT_SIZES = {"gpt-12x256": (2000, 128, 256, 12, 8), "gpt2": (50257, 128, 768, 12, 12)}
MODELS = ("mlp", *GPT_SIZES)
FIRST_STEPS = 3


def linear(key, width, out):
    bound = 1 / math.sqrt(width)
    return {
        "w": jax.random.uniform(key, (width, out), minval=-bound, maxval=bound),
        "b": jnp.zeros(out),
    }


def apply(layer, x):
    return x @ layer["w"] + layer["b"]


def norm(layer, x):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * layer["w"] + layer["b"]


def cross_entropy(logits, labels):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -chosen.mean()


def mlp_job(key):
    widths = (784, 1024, 1024, 1024, 10)
    keys = jax.random.split(key, len(widths))
    layers = [linear(k, *pair) for k, pair in zip(keys, itertools.pairwise(widths), strict=False)]

    def loss(layers, x, labels):
        for layer in layers[:-1]:
            x = jax.nn.relu(apply(layer, x))
        return cross_entropy(apply(layers[-1], x), labels)

    batch = jax.random.normal(keys[-1], (128, 784)), jax.random.randint(keys[-1], (128,), 0, 10)
    return layers, loss, batch


def gpt_job(key, vocabulary, context, width, layers, heads):
    def block(key):
        keys = jax.random.split(key, 4)
        one = {"w": jnp.ones(width), "b": jnp.zeros(width)}
        return {
            "norm1": one,
            "norm2": one,
            "qkv": linear(keys[0], width, 3 * width),
            "out": linear(keys[1], width, width),
            "up": linear(keys[2], width, 4 * width),
            "down": linear(keys[3], 4 * width, width),
        }

    keys = jax.random.split(key, layers + 3)
    weights = {
        "tokens": jax.random.normal(keys[0], (vocabulary, width)) * 0.02,
        "positions": jax.random.normal(keys[1], (context, width)) * 0.02,
        "norm": {"w": jnp.ones(width), "b": jnp.zeros(width)},
        "blocks": [block(k) for k in keys[3:]],
    }

    def attention(layer, x):
        n, t, _ = x.shape
        qkv = apply(layer["qkv"], x).reshape(n, t, 3, heads, width // heads)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(width // heads)
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
        y = jax.nn.softmax(scores) @ v
        return apply(layer["out"], y.transpose(0, 2, 1, 3).reshape(n, t, width))

    def loss(weights, tokens, labels):
        x = weights["tokens"][tokens] + weights["positions"]
        for layer in weights["blocks"]:
            x = x + attention(layer, norm(layer["norm1"], x))
            hidden = jax.nn.gelu(apply(layer["up"], norm(layer["norm2"], x)), approximate=False)
            x = x + apply(layer["down"], hidden)
        return cross_entropy(norm(weights["norm"], x) @ weights["tokens"].T, labels)

    tokens = jax.random.randint(keys[2], (2, 2, context), 0, vocabulary)
    return weights, loss, (tokens[0], tokens[1])


def adamw(loss, rate=1e-4, decay=1e-2, betas=(0.9, 0.999), epsilon=1e-8):
    def step(state, *batch):
        weights, first, second, count = state
        value, grads = jax.value_and_grad(loss)(weights, *batch)
        first = jax.tree.map(lambda m, g: betas[0] * m + (1 - betas[0]) * g, first, grads)
        second = jax.tree.map(lambda v, g: betas[1] * v + (1 - betas[1]) * g * g, second, grads)
        correct1, correct2 = 1 - betas[0] ** count, 1 - betas[1] ** count

        def update(w, m, v):
            return w * (1 - rate * decay) - rate * (m / correct1) / (
                jnp.sqrt(v / correct2) + epsilon
            )

        return (jax.tree.map(update, weights, first, second), first, second, count + 1), value

    return step


class JaxTrainer:
    def __init__(self, model: str) -> None:
        self._model = model
        key = jax.random.PRNGKey(0)
        if model == "mlp":
            weights, self._loss, self._batch = mlp_job(key)
        else:
            weights, self._loss, self._batch = gpt_job(key, *GPT_SIZES[model])
        # Buffers of their own: what is donated may not be shared.
        weights = jax.tree.map(jnp.copy, weights)
        first, second = (jax.tree.map(jnp.zeros_like, weights) for _ in range(2))
        self._state = jax.block_until_ready((weights, first, second, jnp.float32(1)))
        self._losses: list[float] = []

    def first(self) -> dict:
        reset_peak_memory()
        begin = time.perf_counter()
        lowered = jax.jit(adamw(self._loss), donate_argnums=0).lower(self._state, *self._batch)
        traced = time.perf_counter()
        self._step = lowered.compile()
        compiled = time.perf_counter()
        self.step()
        first_step = time.perf_counter() - begin
        for _ in range(FIRST_STEPS - 1):
            self.step()
        compiling_peak = peak_memory()
        gc.collect()
        reset_peak_memory()
        return {
            "first_step": first_step,
            "trace": traced - begin,
            "compiles": 1,
            "compile": compiled - traced,
            "compiling_peak": compiling_peak,
        }

    def step(self) -> None:
        self._state, value = jax.block_until_ready(self._step(self._state, *self._batch))
        self._losses.append(value.item())

    def turn(self) -> Times:
        return turns.steps(self._model, self.step)

    def last(self) -> dict:
        return {"peak": peak_memory(), "losses": self._losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--turns", type=int)
    arguments = parser.parse_args()
    trainer = JaxTrainer(arguments.model)
    if arguments.turns is None:
        turns.serve(trainer)
    else:
        turns.run(trainer, arguments.turns)


if __name__ == "__main__":
    main()

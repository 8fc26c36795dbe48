"""Models as people write them: each is one function of `jax.numpy`.

The depth of a model sets the size of its text. Layers and steps are unrolled, so that no two lines
are equal.
"""

# jax has types for a part of what is called here.
# mypy: disable-error-code="no-untyped-call,no-any-return"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, random

Tree = Any
"""Arrays, or descriptions of arrays, in lists and dictionaries."""


class Program(NamedTuple):
    """A function to compile, and the shapes of its arguments."""

    function: Callable[..., Tree]
    arguments: tuple[Tree, ...]


def floats(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def integers(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.int32)


# ---- what models share


def norm(x: Array, scale: Array) -> Array:
    return x * lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * scale


def rotated(x: Array) -> Array:
    """Rotary positions of `[batch, length, heads, size]`."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] / 10_000 ** (jnp.arange(half) / half)
    sin, cos = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1)


def attention(x: Array, weights: Tree, heads: int, bias: Array | float = 0.0) -> Array:
    """Self-attention over the last axis but one of `[batch, length, width]`."""
    batch, length, width = x.shape
    q, k, v = ((x @ weights[name]).reshape(batch, length, heads, width // heads) for name in "qkv")
    scores = jnp.einsum("bqhd,bkhd->bhqk", rotated(q), rotated(k)) / (width // heads) ** 0.5
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores + bias), v)
    return mixed.reshape(batch, length, width) @ weights["o"]


def attention_weights(width: int) -> Tree:
    return {name: floats(width, width) for name in "qkvo"}


def gated(x: Array, weights: Tree) -> Array:
    return (jax.nn.silu(x @ weights["gate"]) * (x @ weights["up"])) @ weights["down"]


def gated_weights(width: int, hidden: int, *outer: int) -> Tree:
    up = floats(*outer, width, hidden)
    return {"gate": up, "up": up, "down": floats(*outer, hidden, width)}


def cross_entropy(logits: Array, labels: Array) -> Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -jnp.mean(chosen)


def training(loss: Callable[..., Array], weights: Tree, *batch: Tree) -> Program:
    """A step of Adam: gradients clipped by their norm, a warm-up, weights that decay."""

    def step(weights: Tree, first: Tree, second: Tree, count: Array, *batch: Tree) -> Tree:
        value, slopes = jax.value_and_grad(loss)(weights, *batch)
        size = jnp.sqrt(sum(jnp.sum(jnp.square(slope)) for slope in jax.tree.leaves(slopes)))
        slopes = jax.tree.map(lambda slope: slope * jnp.minimum(1.0, 1.0 / size), slopes)
        count = count + 1
        rate = 3e-4 * jnp.minimum(1.0, count / 1000)
        first = jax.tree.map(lambda m, slope: 0.9 * m + 0.1 * slope, first, slopes)
        second = jax.tree.map(lambda v, slope: 0.95 * v + 0.05 * slope**2, second, slopes)
        weights = jax.tree.map(
            lambda w, m, v: (
                w
                - rate * (m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.95**count)) + 1e-8) + 0.1 * w)
            ),
            *(weights, first, second),
        )
        return value, weights, first, second, count

    return Program(step, (weights, weights, weights, integers(), *batch))


# ---- models


def language(layers: int, width: int = 512, words: int = 32_000) -> Program:
    """A training step of a decoder: RMS norm, rotary attention, a gated MLP."""

    def loss(weights: Tree, tokens: Array, labels: Array) -> Array:
        x = weights["embed"][tokens]
        length = tokens.shape[1]
        mask = jnp.where(jnp.tril(jnp.ones((length, length), bool)), 0.0, -1e9)
        for layer in weights["layers"]:
            x = x + attention(norm(x, layer["before"]), layer["attention"], 8, mask)
            x = x + gated(norm(x, layer["between"]), layer["mlp"])
        return cross_entropy(norm(x, weights["after"]) @ weights["embed"].T, labels)

    layer = {
        "before": floats(width),
        "attention": attention_weights(width),
        "between": floats(width),
        "mlp": gated_weights(width, 4 * width),
    }
    weights = {"embed": floats(words, width), "layers": [layer] * layers, "after": floats(width)}
    return training(loss, weights, integers(4, 256), integers(4, 256))


def experts(layers: int, width: int = 256, count: int = 8) -> Program:
    """A training step of a mixture of experts: each token goes to two, each expert has room."""
    length, room = 512, 160

    def mixture(x: Array, weights: Tree) -> Array:
        odds, chosen = lax.top_k(jax.nn.softmax(x @ weights["router"]), 2)
        wanted = jax.nn.one_hot(chosen, count).swapaxes(0, 1).reshape(2 * length, count)
        place = (jnp.cumsum(wanted, 0) - 1) * wanted
        kept = wanted * (place < room)
        slots = jax.nn.one_hot(place.astype(int), room) * kept[..., None]
        slots = slots.reshape(2, length, count, room)
        inputs = jnp.einsum("ktes,td->esd", slots, x)
        hidden = jax.nn.silu(jnp.einsum("esd,edh->esh", inputs, weights["gate"]))
        hidden = hidden * jnp.einsum("esd,edh->esh", inputs, weights["up"])
        outputs = jnp.einsum("esh,ehd->esd", hidden, weights["down"])
        return jnp.einsum("ktes,esd,tk->td", slots, outputs, odds)

    def loss(weights: Tree, x: Array, target: Array) -> Array:
        for layer in weights:
            x = x + attention(norm(x, layer["before"])[None], layer["attention"], 4)[0]
            x = x + mixture(norm(x, layer["between"]), layer["experts"])
        return jnp.mean(jnp.square(x - target))

    layer = {
        "before": floats(width),
        "attention": attention_weights(width),
        "between": floats(width),
        "experts": {"router": floats(width, count), **gated_weights(width, 2 * width, count)},
    }
    return training(loss, [layer] * layers, floats(length, width), floats(length, width))


def convolved(x: Array, kernel: Array, stride: int = 1, groups: int = 1) -> Array:
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def vision(blocks: int, width: int = 64, pixels: int = 224) -> Program:
    """A training step of a residual network with batch norm, of four stages."""

    def batch_norm(x: Array, weights: Tree) -> Array:
        mean, spread = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (x - mean) * lax.rsqrt(spread + 1e-5) * weights["scale"] + weights["shift"]

    def loss(weights: Tree, image: Array, label: Array) -> Array:
        x = convolved(image, weights["stem"], 2)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for n, stage in enumerate(weights["stages"]):
            for i, block in enumerate(stage):
                stride = 2 if n and not i else 1
                y = jax.nn.relu(batch_norm(convolved(x, block["in"]), block["norms"][0]))
                y = jax.nn.relu(batch_norm(convolved(y, block["mid"], stride), block["norms"][1]))
                y = batch_norm(convolved(y, block["out"]), block["norms"][2])
                x = jax.nn.relu(y + (convolved(x, block["skip"], stride) if not i else x))
        return cross_entropy(x.mean((1, 2)) @ weights["head"], label)

    def block(inside: int, middle: int) -> Tree:
        outside = 4 * middle
        return {
            "in": floats(1, 1, inside, middle),
            "mid": floats(3, 3, middle, middle),
            "out": floats(1, 1, middle, outside),
            "skip": floats(1, 1, inside, outside),
            "norms": [
                {"scale": floats(size), "shift": floats(size)} for size in (middle, middle, outside)
            ],
        }

    sizes = [width << n for n in range(4)]
    stages = [
        [
            block((4 * size if i else max(2 * size, width) if n else width), size)
            for i in range(blocks)
        ]
        for n, size in enumerate(sizes)
    ]
    weights = {
        "stem": floats(7, 7, 3, width),
        "stages": stages,
        "head": floats(4 * sizes[-1], 1000),
    }
    return training(loss, weights, floats(8, pixels, pixels, 3), integers(8))


def molecules(steps: int, atoms: int = 4096) -> Program:
    """Molecular dynamics: lists of neighbours, Lennard-Jones and charges, bonds, a thermostat."""
    near = 64

    def energy(x: Array, box: Array, neighbours: Array, charge: Array, bonds: Array) -> Array:
        apart = x[:, None] - x[neighbours]
        apart = apart - box * jnp.round(apart / box)
        square = jnp.sum(apart * apart, -1) + 1e-6
        sixth = (1 / square) ** 3
        inside = square < 9.0
        pairs = 4 * (sixth**2 - sixth)
        length = jnp.sqrt(square)
        pairs = pairs + charge[:, None] * charge[neighbours] * lax.erfc(length) / length
        stretch = x[bonds[:, 0]] - x[bonds[:, 1]]
        spring = jnp.sqrt(jnp.sum(stretch * stretch, -1) + 1e-6) - 1.0
        return jnp.sum(jnp.where(inside, pairs, 0.0)) / 2 + 50 * jnp.sum(spring * spring)

    def simulate(x: Array, v: Array, mass: Array, key: Array, *rest: Array) -> tuple[Array, ...]:
        force = jax.grad(energy)
        f = -force(x, *rest)
        for n in range(steps):
            v = v + 0.5e-3 * f / mass
            x = x + 1e-3 * v
            x = x - rest[0] * jnp.floor(x / rest[0])
            f = -force(x, *rest)
            noise = random.normal(random.fold_in(key, n), v.shape)
            v = (v + 0.5e-3 * f / mass) * 0.99 + 0.1 * noise / jnp.sqrt(mass)
        return x, v, jnp.sum(mass * v * v)

    places = floats(atoms, 3)
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    rest = (floats(3), integers(atoms, near), floats(atoms), integers(atoms, 2))
    return Program(simulate, (places, places, floats(atoms, 1), key, *rest))


def speech(layers: int, width: int = 256, states: int = 16) -> Program:
    """A training step of a recognizer: short convolutions, selective state spaces, a recurrence."""

    def scanned(x: Array, weights: Tree) -> Array:
        step = jax.nn.softplus(x @ weights["step"])
        decay = jnp.exp(-jnp.exp(weights["decay"]) * step[..., None])
        inputs = (step * x)[..., None] * (x @ weights["in"])[..., None, :]

        def combined(one: Tree, two: Tree) -> Tree:
            return one[0] * two[0], one[1] * two[0] + two[1]

        _, state = lax.associative_scan(combined, (decay, inputs), axis=1)
        return jnp.einsum("blds,bls->bld", state, x @ weights["out"]) + x * weights["skip"]

    def recurrence(x: Array, weights: Tree) -> Array:
        def cell(h: Array, each: Array) -> tuple[Array, Array]:
            gate = jax.nn.sigmoid(each @ weights["gate"] + h @ weights["back"])
            h = gate * h + (1 - gate) * jnp.tanh(each @ weights["new"])
            return h, h

        return lax.scan(cell, jnp.zeros_like(x[:, 0]), x.swapaxes(0, 1))[1].swapaxes(0, 1)

    def loss(weights: Tree, sound: Array, labels: Array) -> Array:
        x = sound @ weights["first"]
        for n, layer in enumerate(weights["layers"]):
            y = norm(x, layer["norm"])
            y = convolved(y[:, :, None], layer["kernel"], 1, width)[:, :, 0]
            x = x + scanned(jax.nn.silu(y), layer["scan"]) @ layer["mixed"]
            if n % 4 == 3:
                x = x + recurrence(x, layer["cell"])
        return cross_entropy(x @ weights["last"], labels)

    square = floats(width, width)
    layer = {
        "norm": floats(width),
        "kernel": floats(5, 1, 1, width),
        "scan": {
            "step": square,
            "decay": floats(width, states),
            "in": floats(width, states),
            "out": floats(width, states),
            "skip": floats(width),
        },
        "mixed": square,
        "cell": {"gate": square, "back": square, "new": square},
    }
    weights = {"first": floats(80, width), "layers": [layer] * layers, "last": floats(width, 512)}
    return training(loss, weights, floats(4, 400, 80), integers(4, 400))


def serving(layers: int, width: int = 512, words: int = 32_000) -> Program:
    """One token of a language model in bfloat16: caches of keys, weights of 8 bits, sampling."""
    heads, length = 8, 1024

    def linear(x: Array, weight: Tree) -> Array:
        return (x @ weight["int8"].astype(jnp.bfloat16)) * weight["scale"].astype(jnp.bfloat16)

    def decode(weights: Tree, caches: Tree, token: Array, at: Array, key: Array) -> Tree:
        x = weights["embed"][token]
        batch, made = x.shape[0], []
        for layer, (keys, values) in zip(weights["layers"], caches, strict=True):
            y = norm(x, layer["before"])
            q, k, v = (linear(y, layer[name]).reshape(batch, 1, heads, -1) for name in "qkv")
            keys = lax.dynamic_update_slice(keys, k, (0, at, 0, 0))
            values = lax.dynamic_update_slice(values, v, (0, at, 0, 0))
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, keys).astype(jnp.float32) / 8
            scores = jnp.where(jnp.arange(length) <= at, scores, -jnp.inf)
            odds = jax.nn.softmax(scores).astype(jnp.bfloat16)
            mixed = jnp.einsum("bhqk,bkhd->bqhd", odds, values).reshape(batch, width)
            x = x + linear(mixed, layer["o"])
            y = norm(x, layer["between"])
            y = jax.nn.silu(linear(y, layer["gate"])) * linear(y, layer["up"])
            x = x + linear(y, layer["down"])
            made.append((keys, values))
        logits = (x @ weights["embed"].T).astype(jnp.float32)
        best, order = lax.top_k(logits, 64)
        odds = jax.nn.softmax(best / 0.8)
        kept = jnp.where(jnp.cumsum(odds, -1) - odds < 0.95, best, -jnp.inf)
        pick = random.categorical(key, kept)
        return jnp.take_along_axis(order, pick[:, None], -1)[:, 0], made

    def quantized(*dims: int) -> Tree:
        return {"int8": jax.ShapeDtypeStruct(dims, jnp.int8), "scale": floats(dims[-1])}

    def halves(*dims: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, jnp.bfloat16)

    layer = {
        **{name: quantized(width, width) for name in "qkvo"},
        **{name: quantized(width, 4 * width) for name in ("gate", "up")},
        "down": quantized(4 * width, width),
        **{name: halves(width) for name in ("before", "between")},
    }
    cache = halves(16, length, heads, width // heads)
    weights = {"embed": halves(words, width), "layers": [layer] * layers}
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    return Program(decode, (weights, [(cache, cache)] * layers, integers(16), integers(), key))


def graphs(layers: int, width: int = 64) -> Program:
    """A training step of messages along the edges of a graph, with attention over neighbours."""
    nodes, edges = 5000, 40_000

    def loss(weights: Tree, x: Array, ends: Array, labels: Array) -> Array:
        source, target = ends
        for layer in weights["layers"]:
            y = x @ layer["node"]
            score = jax.nn.leaky_relu((y[source] * y[target]) @ layer["score"])
            score = jnp.exp(score - jax.ops.segment_max(score, target, nodes)[target])
            share = score / (jax.ops.segment_sum(score, target, nodes)[target] + 1e-9)
            news = jax.ops.segment_sum(share * (y[source] @ layer["edge"]), target, nodes)
            x = x + jax.nn.gelu(norm(news, layer["norm"]))
        return cross_entropy(x @ weights["head"], labels)

    square = floats(width, width)
    layer = {"node": square, "edge": square, "score": floats(width, 1), "norm": floats(width)}
    weights = {"layers": [layer] * layers, "head": floats(width, 16)}
    return training(loss, weights, floats(nodes, width), integers(2, edges), integers(nodes))


def recurrent(weights: Array, x: Array) -> Array:
    def loss(weights: Array) -> Array:
        def cell(state: Array, row: Array) -> tuple[Array, Array]:
            state = jnp.tanh(state @ weights + row)
            return state, state.sum()

        return lax.scan(cell, jnp.zeros(x.shape[1:]), x)[1].sum()

    return jax.grad(loss)(weights)


def spectral(field: Array) -> Array:
    waves = jnp.fft.fft2(field)
    wavenumbers = jnp.fft.fftfreq(field.shape[0])
    smooth = jnp.exp(-(wavenumbers[:, None] ** 2 + wavenumbers**2))
    return jnp.fft.ifft2(waves * smooth).real


def solved(matrix: Array, right: Array) -> Tree:
    square = matrix @ matrix.T + jnp.eye(matrix.shape[0])
    q, r = jnp.linalg.qr(matrix)
    return jnp.linalg.solve(square, right), q @ r, jnp.linalg.cholesky(square)


def sampled(key: Array, logits: Array) -> Tree:
    tokens = random.categorical(key, logits)
    order = jnp.argsort(logits, -1)
    kept = random.bernoulli(key, 0.9, logits.shape)
    best = lax.top_k(jnp.where(kept, logits, 0.0), 4)
    return tokens, order, best, random.permutation(key, logits.shape[0])


def pooled(rows: Array, segments: Array, values: Array, table: Array) -> Tree:
    gathered = table[rows] * values[:, None]
    return jax.ops.segment_sum(gathered, segments, 64), table.at[rows].add(gathered)

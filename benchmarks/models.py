"""Single HLO files of 1 to 100 MB, of models as people write them.

    python -m benchmarks.models FOLDER [--gpu PYTHON]

Each model is one function of `jax.numpy` whose depth sets the size of its text. Layers and steps
are unrolled, so that no two lines are equal. Of each model some of these are made

    NAME.before.txt    as jax lowers it
    NAME.cpu.txt       after the passes of XLA:CPU: fused, with layouts, scheduled
    NAME.gpu.txt       after those of XLA:GPU; PYTHON has this compiler

What lies in the folder is not made again. Each file is made by a process of its own.
"""

# jax has types for a part of what is called here.
# mypy: disable-error-code="no-untyped-call,no-any-return"

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ROOT = Path(__file__).parent.parent
GPU = ROOT / "hlo_lint/apps/jax/capture/targets/h200.pbtxt"
DEVICES = 8
FLAGS = (
    f"--xla_force_host_platform_device_count={DEVICES}",
    # LLVM's code is not read, and to optimize it would take most of the time.
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
)

Tree = Any
"""Arrays, or descriptions of arrays, in lists and dictionaries."""


class Program(NamedTuple):
    """A function to compile, and the shapes of its arguments."""

    function: Callable[..., Tree]
    arguments: tuple[Tree, ...]
    specs: tuple[Tree, ...] | None = None
    """The parts of each argument on a mesh of eight devices; None for one device."""


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


def diffusion(blocks: int, width: int = 64) -> Program:
    """A training step of a U-Net that predicts noise: four levels, attention in the lowest two."""
    levels = 4

    def group_norm(x: Array, scale: Array) -> Array:
        groups = x.reshape(*x.shape[:3], 8, -1)
        middle = groups - groups.mean((1, 2, 4), keepdims=True)
        spread = lax.rsqrt(jnp.square(middle).mean((1, 2, 4), keepdims=True) + 1e-5)
        return (middle * spread).reshape(x.shape) * scale

    def block(x: Array, time: Array, weights: Tree) -> Array:
        y = convolved(jax.nn.silu(group_norm(x, weights["scale"])), weights["first"])
        y = y + (time @ weights["time"])[:, None, None]
        y = convolved(jax.nn.silu(y), weights["second"])
        if x.shape[-1] != y.shape[-1]:
            x = x @ weights["skip"]
        if "attention" in weights:
            batch, height, breadth, channels = y.shape
            rows = y.reshape(batch, height * breadth, channels)
            y = y + attention(rows, weights["attention"], 4).reshape(y.shape)
        return x + y

    def loss(weights: Tree, key: Array, image: Array) -> Array:
        noise = random.normal(key, image.shape)
        moment = random.uniform(random.fold_in(key, 1), (image.shape[0], 1))
        noisy = jnp.cos(moment)[..., None, None] * image + jnp.sin(moment)[..., None, None] * noise
        angles = moment * jnp.exp(jnp.linspace(0.0, 8.0, width // 2))
        time = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)
        x = convolved(noisy, weights["first"])
        kept = []
        for level in weights["down"]:
            for each in level:
                x = block(x, time, each)
                kept.append(x)
            x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME") / 4
        for level in weights["up"]:
            batch, height, breadth, channels = x.shape
            x = jax.image.resize(x, (batch, 2 * height, 2 * breadth, channels), "nearest")
            for each in level:
                x = block(jnp.concatenate([x, kept.pop()], -1), time, each)
        return jnp.mean(jnp.square(convolved(x, weights["last"]) - noise))

    def block_weights(inside: int, outside: int, level: int) -> Tree:
        weights = {
            "scale": floats(inside),
            "first": floats(3, 3, inside, outside),
            "time": floats(width, outside),
            "second": floats(3, 3, outside, outside),
            "skip": floats(inside, outside),
        }
        return weights | ({"attention": attention_weights(outside)} if level >= 2 else {})

    sizes = [width * min(2**level, 4) for level in range(levels)]
    down = [
        [
            block_weights(sizes[max(n - 1, 0)] if not i else sizes[n], sizes[n], n)
            for i in range(blocks)
        ]
        for n in range(levels)
    ]
    up = [
        [
            block_weights(
                (sizes[min(n + 1, levels - 1)] if not i else sizes[n]) + sizes[n], sizes[n], n
            )
            for i in range(blocks)
        ]
        for n in reversed(range(levels))
    ]
    weights = {
        "first": floats(3, 3, 3, width),
        "down": down,
        "up": up,
        "last": floats(3, 3, width, 3),
    }
    return training(loss, weights, jax.ShapeDtypeStruct((2,), jnp.uint32), floats(4, 64, 64, 3))


def convolved(x: Array, kernel: Array, stride: int = 1, groups: int = 1) -> Array:
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def vision(blocks: int, width: int = 64) -> Program:
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
    return training(loss, weights, floats(8, 224, 224, 3), integers(8))


def recommender(tables: int, width: int = 32) -> Program:
    """A training step on clicks: bags of embeddings, crosses of features, two MLPs."""
    batch, bag = 256, 20

    def perceptron(x: Array, weights: Sequence[Array]) -> Array:
        for weight in weights:
            x = jax.nn.relu(x @ weight)
        return x

    def loss(weights: Tree, ids: Sequence[Array], dense: Array, clicks: Array) -> Array:
        rows = jnp.repeat(jnp.arange(batch), bag)
        features = [perceptron(dense, weights["bottom"])]
        for table, bags in zip(weights["tables"], ids, strict=True):
            vectors = table[bags.reshape(-1) % table.shape[0]]
            sums = jax.ops.segment_sum(vectors, rows, batch)
            known = jax.ops.segment_sum((bags.reshape(-1) > 0).astype(float), rows, batch)
            features.append(sums / jnp.maximum(known, 1.0)[:, None])
        crosses = [
            jnp.sum(features[i] * features[j], -1)
            for i in range(len(features))
            for j in range(max(0, i - 8), i)
        ]
        x = jnp.concatenate([features[0], jnp.stack(crosses, -1)], -1)
        odds = perceptron(x, weights["top"])[:, 0]
        return jnp.mean(jnp.maximum(odds, 0) - odds * clicks + jnp.log1p(jnp.exp(-jnp.abs(odds))))

    crosses = sum(min(i, 8) for i in range(tables + 1))
    weights = {
        "tables": [floats(1000 + 7919 * n % 90_001, width) for n in range(tables)],
        "bottom": [floats(13, 256), floats(256, width)],
        "top": [floats(width + crosses, 512), floats(512, 256), floats(256, 1)],
    }
    return training(
        loss, weights, [integers(batch, bag)] * tables, floats(batch, 13), floats(batch)
    )


def turbulence(steps: int, size: int = 64) -> Program:
    """Steps of Runge and Kutta of a spectral solver of the equations of Navier and Stokes."""

    def slope(w: Array, force: Array) -> Array:
        waves = jnp.fft.fftfreq(size, 1 / size)
        x, y = waves[:, None], jnp.arange(size // 2 + 1)[None, :]
        square = jnp.where(x**2 + y**2 == 0, 1.0, x**2 + y**2)
        stream = w / square
        u, v = jnp.fft.irfft2(1j * y * stream), jnp.fft.irfft2(-1j * x * stream)
        dx, dy = jnp.fft.irfft2(1j * x * w), jnp.fft.irfft2(1j * y * w)
        kept = (jnp.abs(x) < size / 3) & (y < size / 3)
        return jnp.where(kept, -jnp.fft.rfft2(u * dx + v * dy), 0) - 1e-3 * square * w + force

    def simulate(vorticity: Array, force: Array, time: Array) -> tuple[Array, Array]:
        w, f = jnp.fft.rfft2(vorticity), jnp.fft.rfft2(force)
        energies = []
        for _ in range(steps):
            a = slope(w, f)
            b = slope(w + time / 2 * a, f)
            c = slope(w + time / 2 * b, f)
            d = slope(w + time * c, f)
            w = w + time / 6 * (a + 2 * b + 2 * c + d)
            energies.append(jnp.sum(jnp.abs(w) ** 2))
        return jnp.fft.irfft2(w), jnp.stack(energies)

    return Program(simulate, (floats(size, size), floats(size, size), floats()))


def ocean(steps: int, size: int = 256) -> Program:
    """The gradient of shallow water over its floor: a stencil with limiters, many steps long."""

    def shifted(x: Array, by: int, axis: int) -> Array:
        return jnp.roll(x, by, axis)

    def flux(q: Array, speed: Array, axis: int) -> Array:
        left, right = q - shifted(q, 1, axis), shifted(q, -1, axis) - q
        same = left * right > 0
        slope = jnp.where(same, jnp.sign(left) * jnp.minimum(abs(left), abs(right)), 0.0)
        upwind = q + 0.5 * slope
        downwind = shifted(q - 0.5 * slope, -1, axis)
        return jnp.where(speed > 0, speed * upwind, speed * downwind)

    def drift(floor: Array, height: Array, u: Array, v: Array, gauge: Array) -> Array:
        for _ in range(steps):
            depth = jnp.maximum(height - floor, 1e-3)
            across, along = flux(depth, u, 0), flux(depth, v, 1)
            height = height - 0.1 * (across - shifted(across, 1, 0))
            height = height - 0.1 * (along - shifted(along, 1, 1))
            drag = 1 + 0.01 * jnp.sqrt(u * u + v * v) / depth ** (4 / 3)
            u = (u - 0.98 * (shifted(height, -1, 0) - height) + 1e-4 * v) / drag
            v = (v - 0.98 * (shifted(height, -1, 1) - height) - 1e-4 * u) / drag
            u = u.at[0].set(0.0).at[-1].set(0.0)
            v = v.at[:, 0].set(0.0).at[:, -1].set(0.0)
        return jnp.sum(jnp.square(height - gauge))

    field = floats(size, size)
    return Program(jax.value_and_grad(drift), (field,) * 5)


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


def folding(blocks: int, width: int = 64, length: int = 96) -> Program:
    """A training step of a pair stack: triangles multiplied, attention with a bias, transitions."""

    def triangle(pair: Array, weights: Tree, rule: str) -> Array:
        x = norm(pair, weights["norm"])
        left = jax.nn.sigmoid(x @ weights["left_gate"]) * (x @ weights["left"])
        right = jax.nn.sigmoid(x @ weights["right_gate"]) * (x @ weights["right"])
        mixed = norm(jnp.einsum(rule, left, right), weights["after"]) @ weights["out"]
        return mixed * jax.nn.sigmoid(x @ weights["gate"])

    def loss(weights: Tree, pair: Array, distances: Array) -> Array:
        for block in weights["blocks"]:
            pair = pair + triangle(pair, block["outgoing"], "ikc,jkc->ijc")
            pair = pair + triangle(pair, block["incoming"], "kic,kjc->ijc")
            for name in ("starting", "ending"):
                x = pair if name == "starting" else pair.swapaxes(0, 1)
                bias = jnp.einsum("ijc,ch->hij", x, block[name]["bias"])
                x = attention(norm(x, block[name]["norm"]), block[name]["attention"], 4, bias)
                pair = pair + (x if name == "starting" else x.swapaxes(0, 1))
            pair = pair + gated(norm(pair, block["norm"]), block["mlp"])
        return cross_entropy((pair + pair.swapaxes(0, 1)) @ weights["head"], distances)

    edge = {name: floats(width, width) for name in ("left_gate", "left", "right_gate", "right")}
    edge |= {name: floats(width, width) for name in ("out", "gate")}
    edge |= {name: floats(width) for name in ("norm", "after")}
    ends = {
        "norm": floats(width),
        "bias": floats(width, 4),
        "attention": attention_weights(width),
    }
    block = {
        "outgoing": edge,
        "incoming": edge,
        "starting": ends,
        "ending": ends,
        "norm": floats(width),
        "mlp": gated_weights(width, 4 * width),
    }
    weights = {"blocks": [block] * blocks, "head": floats(width, 64)}
    return training(loss, weights, floats(length, length, width), integers(length, length))


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


def filtering(steps: int, size: int = 12) -> Program:
    """The likelihood of a filter of Kalman and its gradient: Cholesky, triangular solves, sorts."""

    def likelihood(model: Tree, seen: Array) -> Array:
        mean, spread = model["mean"], model["spread"] @ model["spread"].T
        total = jnp.zeros(())
        for n in range(steps):
            mean = jnp.tanh(model["move"] @ mean)
            spread = model["move"] @ spread @ model["move"].T + jnp.eye(size) * 1e-2
            look = model["look"]
            error = seen[n] - look @ mean
            square = jnp.linalg.cholesky(look @ spread @ look.T + jnp.eye(4) * 1e-1)
            white = lax.linalg.triangular_solve(square, error[:, None], left_side=True, lower=True)
            gain = lax.linalg.triangular_solve(square, look @ spread, left_side=True, lower=True)
            mean = mean + (gain.T @ white)[:, 0]
            spread = spread - gain.T @ gain
            total = total - 0.5 * jnp.sum(jnp.sort(white[:, 0] ** 2)[:3])
            total = total - jnp.sum(jnp.log(jnp.diagonal(square)))
        return -total

    square = floats(size, size)
    model = {"mean": floats(size), "spread": square, "move": square, "look": floats(4, size)}
    return training(likelihood, model, floats(steps, 4))


def sharded(layers: int, width: int = 512) -> Program:
    """The step of `language` on eight devices: its batch in two parts, its weights in four."""
    program = language(layers, width)
    weights, _, _, _, *batch = program.arguments

    def parts(path: Sequence[Any], shape: jax.ShapeDtypeStruct) -> PartitionSpec:
        if len(shape.shape) < 2:
            return PartitionSpec()
        is_reduced = getattr(path[-1], "key", "") in ("o", "down", "embed")
        return PartitionSpec("model", "data") if is_reduced else PartitionSpec("data", "model")

    weights = jax.tree_util.tree_map_with_path(parts, weights)
    specs = (weights, weights, weights, PartitionSpec(), *[PartitionSpec("data")] * len(batch))
    return program._replace(specs=specs)


# ---- files


class Model(NamedTuple):
    """Programs of one kind: the depth of the one that is compiled, and that of a larger one."""

    program: Callable[[int], Program]
    kinds: tuple[str, ...]
    """Of the files that are made: `before` optimizations, as `cpu` or `gpu` compiled them."""
    compiled: int
    lowered: int | None = None
    """None if the program that is compiled is lowered, too."""


MODELS = {
    "language": Model(language, ("before", "cpu"), 24, 300),
    "experts": Model(experts, ("cpu",), 16),
    "diffusion": Model(diffusion, ("cpu",), 6),
    "vision": Model(vision, ("cpu",), 8),
    "recommender": Model(recommender, ("cpu",), 60),
    "turbulence": Model(turbulence, ("before", "cpu", "gpu"), 200, 2200),
    "ocean": Model(ocean, ("before",), 5, 60),  # XLA:CPU fuses producers into each reader
    "molecules": Model(molecules, ("cpu",), 60),
    "folding": Model(folding, ("before",), 12, 75),
    "speech": Model(speech, ("before",), 8),
    "serving": Model(serving, ("gpu",), 60),
    "graphs": Model(graphs, ("cpu",), 30),
    "filtering": Model(filtering, ("cpu",), 50),
    "sharded": Model(sharded, ("gpu",), 24),
}


def placed(program: Program, devices: Sequence[Any]) -> tuple[Tree, ...]:
    """The arguments on a mesh of the devices; on the first one if the program needs one."""
    if program.specs is None:
        mesh = Mesh(np.array(devices[:1]), ("one",))
        specs = jax.tree.map(lambda _: PartitionSpec(), program.arguments)
    else:
        mesh = Mesh(np.array(devices[:DEVICES]).reshape(2, DEVICES // 2), ("data", "model"))
        specs = program.specs

    def at(shape: jax.ShapeDtypeStruct, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

    arguments: tuple[Tree, ...] = jax.tree.map(at, program.arguments, specs)
    return arguments


def lowered(name: str, depth: int, devices: Sequence[Any]) -> Any:
    program = MODELS[name].program(depth)
    return jax.jit(program.function).lower(*placed(program, devices))


def write_before(name: str, depth: int, target: Path) -> None:
    module = lowered(name, depth, jax.devices()).compiler_ir("hlo").as_hlo_module()
    target.write_text(module.to_string(), "utf-8")


def write_optimized(name: str, depth: int, target: Path, devices: Sequence[Any]) -> None:
    """Compiles, and keeps the last text of those that XLA writes."""
    with tempfile.TemporaryDirectory(dir=target.parent) as dump:
        lowered(name, depth, devices).compile({"xla_dump_to": dump, "xla_dump_hlo_as_text": True})
        texts = Path(dump).glob("*after_optimizations.txt")
        max(texts, key=lambda path: path.stat().st_size).rename(target)


def gpus() -> Sequence[Any]:
    """GPUs that are not here; XLA's compiler needs none of them."""
    from jax.experimental import topologies

    description = {"target_config": GPU.read_text("utf-8"), "topology": f"1x1x{DEVICES}"}
    return topologies.get_topology_desc(platform="cuda", **description).devices


def make(name: str, kind: str, target: Path) -> None:
    model = MODELS[name]
    match kind:
        case "before":
            write_before(name, model.lowered or model.compiled, target)
        case "cpu":
            write_optimized(name, model.compiled, target, jax.devices())
        case "gpu":
            write_optimized(name, model.compiled, target, gpus())


def make_all(folder: Path, gpu: Path | None) -> None:
    """Each file that the folder lacks, in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    pythons = {"before": Path(sys.executable), "cpu": Path(sys.executable)}
    if gpu is not None:
        pythons["gpu"] = gpu
    for name, model in MODELS.items():
        for kind in model.kinds:
            target, python = folder / f"{name}.{kind}.txt", pythons.get(kind)
            if target.exists() or python is None:
                continue
            command = [str(python), "-m", "benchmarks.models", "--make", name, kind, str(target)]
            environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(FLAGS)}
            begun = time.monotonic()
            subprocess.run(command, cwd=ROOT, env=environment, check=True)
            size = target.stat().st_size / 1e6
            print(f"{target.name}: {size:.2f} MB in {time.monotonic() - begun:.0f} s", flush=True)


def main() -> None:
    match sys.argv[1:]:
        case ["--make", name, kind, target]:
            make(name, kind, Path(target))
            return
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", type=Path, help="a Python whose jax has the compiler for GPUs")
    given = parser.parse_args()
    make_all(given.folder.resolve(), given.gpu)


if __name__ == "__main__":
    main()

"""The classifier and one step of its training, in plain JAX.

Nothing here knows how many processes there are: the arrays carry their sharding, and `jax.jit` derives
from it what must be exchanged between the hosts (here: the mean of the gradients, once a step).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

__all__ = ["TrainState", "accuracy", "build_state", "from_arrays", "loss", "to_arrays", "train_step"]

LAYERS = (64, 128, 64, 10)
"""Pixels, two hidden layers, digits."""
MOMENTUM = 0.9

Arrays = dict[str, npt.NDArray[np.float32]]
Tensors = Mapping[str, jax.Array | npt.NDArray[np.float32]]
"""By name: arrays on the host, or spread over devices."""


class TrainState(NamedTuple):
    """All that a training run carries from one step to the next; both parts have the same keys."""

    parameters: Tensors
    momentum: Tensors


def build_state(*, seed: int) -> TrainState:
    """The state before the first step, still on no device; the same for every process with this seed."""
    random = np.random.default_rng(seed)
    arrays: Arrays = {}
    for layer, (rows, columns) in enumerate(itertools.pairwise(LAYERS)):
        # He initialisation: keeps the spread of the activations through ReLU layers.
        weights = random.normal(scale=(2 / rows) ** 0.5, size=(rows, columns))
        arrays[f"weights{layer}"] = weights.astype(np.float32)
        arrays[f"bias{layer}"] = np.zeros(columns, np.float32)
    return TrainState(arrays, {name: np.zeros_like(array) for name, array in arrays.items()})


def _logits(parameters: Tensors, images: jax.Array) -> jax.Array:
    activations = images
    last = len(LAYERS) - 2
    for layer in range(last + 1):
        activations = activations @ parameters[f"weights{layer}"] + parameters[f"bias{layer}"]
        if layer < last:
            activations = jax.nn.relu(activations)
    return activations


def loss(parameters: Tensors, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean cross entropy of the labels, in nats."""
    log_probabilities = jax.nn.log_softmax(_logits(parameters, images))
    return -jnp.mean(jnp.take_along_axis(log_probabilities, labels[:, None], axis=1))


def accuracy(parameters: Tensors, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Fraction of the images whose most likely digit is the right one."""
    return jnp.mean(jnp.argmax(_logits(parameters, images), axis=1) == labels)


def train_step(
    state: TrainState, images: jax.Array, labels: jax.Array, learning_rate: float
) -> tuple[TrainState, jax.Array]:
    """One step of gradient descent with momentum; also the loss of the batch before it."""
    value, gradients = jax.value_and_grad(loss)(state.parameters, images, labels)
    momentum = jax.tree.map(lambda old, new: MOMENTUM * old + new, state.momentum, gradients)
    parameters = jax.tree.map(lambda old, step: old - learning_rate * step, state.parameters, momentum)
    return TrainState(parameters, momentum), value


def to_arrays(state: TrainState) -> Arrays:
    """The state as named NumPy arrays, as a checkpoint stores them."""
    return {
        f"{part}/{name}": np.asarray(array)
        for part, arrays in state._asdict().items()
        for name, array in arrays.items()
    }


def from_arrays(arrays: Tensors) -> TrainState:
    """The inverse of `to_arrays`; arrays that are on devices stay there."""
    parts: dict[str, dict[str, jax.Array | npt.NDArray[np.float32]]] = {
        part: {} for part in TrainState._fields
    }
    for path, array in arrays.items():
        part, _, name = path.partition("/")
        parts[part][name] = array
    return TrainState(**parts)

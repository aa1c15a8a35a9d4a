"""Train a classifier of handwritten digits, data-parallel over all hosts of a Fray job.

Every process runs this same program on its own part of each batch; JAX adds the gradients up between
the hosts. Run by `fray run -f frayjob.yaml`; outside any job, `python train.py` is a gang of one.
"""

from __future__ import annotations

import atexit
import io
import math
import os
import signal
import sys
import traceback

import jax
import numpy as np
import numpy.typing as npt
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from fray.runtime.identity import Identity, current_identity

# isort: split
import checkpoint
import data
import model
from options import Options, parse_options

EXIT_TERMINATED = 128 + signal.SIGTERM
"""As a shell reports a process that SIGTERM ended: the run was interrupted, not wrong."""
EXIT_FAILURE = 1
EXPLICIT_PLATFORMS = ("cpu", "cuda")
"""Values of JAX_PLATFORMS for which JAX can't find out by itself who belongs to the gang."""
LOOPBACK = ("127.0.0.1:", "localhost:", "[::1]:")


def main() -> int:
    """Train as the command line says; the result is the exit code of this process."""
    options = parse_options(sys.argv[1:])
    try:
        return run_host(options).exit_code
    except (Exception, KeyboardInterrupt):  # noqa: BLE001 - the last resort of a process, which ends here
        try:
            traceback.print_exc()
            sys.stdout.flush()
        finally:
            # Not sys.exit(): JAX would wait at that same barrier for peers that are lost or that wait
            # for this process. The whole gang starts again anyway, so the best is to let go at once.
            os._exit(EXIT_FAILURE)


def train(options: Options) -> float:
    """Train, and return the share of test images that were told right: `main` for callers from Python.

    Raises:
        SystemExit: with 143, the run was interrupted; the next attempt goes on from its checkpoint.
    """
    try:
        training = run_host(options)
    except Exception:
        # As in `main`, but the caller of this function must still report the exception: the process lets
        # go once it exits, before JAX does what it has registered for that moment.
        atexit.register(os._exit, EXIT_FAILURE)
        raise
    if training.exit_code:
        raise SystemExit(training.exit_code)
    return training.accuracy


def run_host(options: Options) -> Training:
    """Do the part of this process in one attempt; returns what came of it."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # each line at once, and none lost to an ASCII-only log
        sys.stdout.reconfigure(line_buffering=True, errors="replace")
    identity = current_identity()
    join_gang(identity)
    training = Training(options, identity)
    training.run()
    # A barrier: rank 0 hosts the rendezvous, so nobody may leave before the last one is done.
    jax.distributed.shutdown()
    return training


def join_gang(identity: Identity) -> None:
    """Connect this process with its peers; returns when all of them have come.

    Raises:
        RuntimeError: the peers didn't come in time.
    """
    if identity.coordinator is None or identity.world_size == 1:
        return
    if jax.config.jax_platforms not in EXPLICIT_PLATFORMS:
        # On real TPU hosts JAX finds everything itself: from libtpu, and from the TPU_* and MEGASCALE_*
        # variables that Fray sets.
        jax.distributed.initialize()
        return
    # The job file says JAX_PLATFORMS=cpu: the job has the shape of a TPU gang, but runs on processors.
    # Fray says who is who, and Gloo moves the data between the processes over TCP.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        coordinator_address=identity.coordinator,
        num_processes=identity.world_size,
        process_id=identity.rank,
        cluster_detection_method="deactivate",
        # By default JAX listens on all interfaces; on a laptop nobody else shall reach it.
        coordinator_bind_address=identity.coordinator if identity.coordinator.startswith(LOOPBACK) else None,
        # Gloo mostly notices at once that a peer is gone. When it doesn't, the rest ends after this time.
        heartbeat_timeout_seconds=10,
    )


class Training:
    """One attempt: the same calls in the same order on every process, as JAX demands.

    Only what all processes know alike may decide what they do next; otherwise one waits in an exchange
    that its peers never enter. `accuracy` and `exit_code` are what came of it.
    """

    def __init__(self, options: Options, identity: Identity) -> None:
        self.options = options
        self.identity = identity
        self.checkpoints = options.output / "checkpoints"
        self.picture = options.output / "loss.png"
        self.losses: list[float] = []
        self.accuracy = math.nan
        self.exit_code = 0
        devices = jax.device_count()
        self.batch_size = max(1, options.batch_size // devices) * devices
        mesh = jax.make_mesh((devices,), ("batch",), axis_types=(AxisType.Auto,))
        self.replicated = NamedSharding(mesh, PartitionSpec())
        self.sharded = NamedSharding(mesh, PartitionSpec("batch"))
        # The weights are on every device, so the results are too; JAX adds the exchange that this takes.
        self.step = jax.jit(model.train_step, donate_argnums=0, out_shardings=self.replicated)
        self.measure_accuracy = jax.jit(model.accuracy, out_shardings=self.replicated)

    def run(self) -> None:
        """Train until the last epoch or a SIGTERM."""
        me = self.identity
        print(
            f"rank {me.rank} of {me.world_size}: slice {me.slice}, host {me.host}, attempt {me.attempt}, "
            f"has {jax.local_device_count()} of {jax.device_count()} devices ({jax.devices()[0].device_kind})"
        )
        dataset = data.load_dataset(seed=self.options.seed)
        test_images = self._globally(dataset.test_images, self.replicated)
        test_labels = self._globally(dataset.test_labels, self.replicated)
        done, state = self._restore()
        self.accuracy = float(self.measure_accuracy(state.parameters, test_images, test_labels))
        for epoch in range(done + 1, self.options.epochs + 1):
            self._fail_if_planned(epoch)
            state, loss = self._train_epoch(epoch, state, dataset)
            if not math.isfinite(loss):
                raise FloatingPointError(f"loss {loss} in epoch {epoch}: choose a smaller --learning-rate")
            self.losses.append(loss)
            self.accuracy = float(self.measure_accuracy(state.parameters, test_images, test_labels))
            self._save(epoch, state)
            self._say(
                f"epoch {epoch}/{self.options.epochs} loss {loss:.3f} test accuracy {self.accuracy:.2f}"
            )
            # True on all processes after the same epoch once any of them has got a SIGTERM.
            if epoch < self.options.epochs and multihost_utils.reached_preemption_sync_point(epoch):
                self._say(f"terminated after epoch {epoch}; the next attempt goes on from its checkpoint")
                self.exit_code = EXIT_TERMINATED
                return
        if me.is_leader:
            self._report()

    def _train_epoch(
        self, epoch: int, state: model.TrainState, dataset: data.Dataset
    ) -> tuple[model.TrainState, float]:
        """Every batch once; returns the new state and the mean loss."""
        losses = []
        batches = data.shuffle_into_batches(
            len(dataset.train_images), self.batch_size, seed=self.options.seed, epoch=epoch
        )
        for batch in batches:
            mine = data.shard(batch, rank=jax.process_index(), world_size=jax.process_count())
            # Each process gives the rows that it holds; together they are one array over all devices.
            images = self._globally(dataset.train_images[mine], self.sharded)
            labels = self._globally(dataset.train_labels[mine], self.sharded)
            state, loss = self.step(state, images, labels, self.options.learning_rate)
            losses.append(loss)
        return state, float(np.mean(losses))

    def _restore(self) -> tuple[int, model.TrainState]:
        """The number of epochs already done and the state after them, the same on every process.

        The first attempt of a run starts afresh, whatever an earlier run left; later ones go on from the
        newest checkpoint. Only rank 0 looks, and tells the others: on a cluster they may see another
        disk, or an older state of the same one.
        """
        me = self.identity
        done, arrays = 0, model.to_arrays(model.build_state(seed=self.options.seed))
        if me.is_leader and me.attempt == 1:
            checkpoint.clear(self.checkpoints)
            self.picture.unlink(missing_ok=True)
        elif me.is_leader:
            found = checkpoint.load_newest(self.checkpoints, like=arrays, warn=print)
            if found is None:
                print(f"attempt {me.attempt} found no checkpoint in {self.checkpoints} and starts afresh")
            else:
                print(f"attempt {me.attempt} resumes after epoch {found.epoch}")
                done, arrays, self.losses = found.epoch, dict(found.arrays), list(found.losses)
        done, arrays = multihost_utils.broadcast_one_to_all((done, arrays), is_source=me.is_leader)
        replicated = {name: self._globally(array, self.replicated) for name, array in arrays.items()}
        return int(done), model.from_arrays(replicated)

    def _save(self, epoch: int, state: model.TrainState) -> None:
        """Keep what a later attempt needs; on rank 0 only, since all processes hold the same."""
        if self.identity.is_leader:
            arrays = model.to_arrays(state)
            checkpoint.save(self.checkpoints, checkpoint.Checkpoint(epoch, tuple(self.losses), arrays))

    def _report(self) -> None:
        """Show what came of it: the loss curve as a picture and in the terminal, the accuracy last."""
        import report  # noqa: PLC0415 - Matplotlib takes a second to import: only rank 0 pays

        report.save_curve(self.losses, self.picture)
        print(report.render_curve(self.losses))
        print(f"loss curve saved to {self.picture}")
        print(f"test accuracy {self.accuracy:.2f}")

    def _fail_if_planned(self, epoch: int) -> None:
        me = self.identity
        if self.options.has_planned_failure(epoch=epoch, attempt=me.attempt):
            multihost_utils.sync_global_devices("rank 0 has saved its checkpoint")
            if me.rank == me.world_size - 1:
                raise RuntimeError(
                    f"failing at epoch {epoch} of attempt {me.attempt}, as --fail-at-epoch says"
                )

    def _globally(self, local: npt.ArrayLike, sharding: NamedSharding) -> jax.Array:
        """One array over all devices of the gang, made of the part that each process passes."""
        return jax.make_array_from_process_local_data(sharding, np.asarray(local))

    def _say(self, line: str) -> None:
        if self.identity.is_leader:
            print(line)


if __name__ == "__main__":
    sys.exit(main())

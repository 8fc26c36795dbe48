"""XLA's compilers for absent chips, with a process for each text.

with XlaCompiler(python) as compiler:
    ending = compiler.compile(text, target_config, "--xla_dump_to=…")
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import encode
from hlo_lint.xla.child import Child, ChildDied, ChildError, Pool
from hlo_lint.xla.limits import ChildLimits, Deadline
from hlo_lint.xla.pjrt import ABSENT, Plugin, module_of_text, plugin_path, xla_bindings
from hlo_lint.xla.server import ready

if TYPE_CHECKING:
    from hlo_lint.xla.child import Answer

_unknown = re.compile(r"Unknown flags? in XLA_FLAGS: ([^\n]*)")


@dataclass(frozen=True)
class Ending:
    """The outcome of a compilation."""

    status: str
    """`ok`, `refused` by the parser, `error`, `died`, `timeout`."""
    message: str
    log: str = field(default="", compare=False, repr=False)
    """XLA's log."""
    code: bytes = field(default=b"", compare=False, repr=False)
    """The executable, if it was to be kept and can be."""

    @classmethod
    def of(cls, death: ChildDied) -> Ending:
        """The outcome for a child that died."""
        if death.is_late:
            return cls("timeout", death.reason, death.log)
        return cls("died", death.last_words or death.reason, death.log)

    @property
    def crashed(self) -> bool:
        """True if XLA failed on a module that its parser accepts."""
        return self.status in ("error", "died", "timeout")


class XlaCompiler(AbstractContextManager["XlaCompiler"]):
    """XLA's compiler for GPUs or TPUs, with a child for each concurrent thread."""

    def __init__(
        self,
        python: Path | None = None,
        *,
        timeout: float = 60.0,
        platform: str = "cuda",
        deadline: Deadline | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`python` is an interpreter with the plugin of jax for `platform`, `cuda` or `tpu`.

        `timeout` is in seconds per text, `deadline` is for all texts, `environment` has variables
        in addition to those of this process.
        """
        memory = ChildLimits.by_default(timeout).memory
        limits = ChildLimits(timeout, memory, deadline or Deadline())
        self._platform = platform
        # XLA:GPU reads its flags once per process; libtpu has threads, which do not survive a fork,
        # and a lock for the chip, which a mere compiler does not need.
        is_gpu = platform == "cuda"
        own = ABSENT if is_gpu else {**ABSENT, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
        self._children = Pool(
            lambda: Child(
                python,
                limits=limits,
                setup=load_compiler if is_gpu else ready,
                forks="each time" if is_gpu else "never",
                environment={**own, **(environment or {})},
            )
        )

    def __exit__(self, *_: object) -> None:
        self._children.close()

    def compile(
        self,
        text: str,
        target_config: str,
        flags: str = "",
        devices: Sequence[int] = (1, 1),
        *,
        keeps_code: bool = False,
    ) -> Ending:
        """Compile a text for a GPU or a TPU.

        Args:
            target_config: a `GpuTargetConfigProto` as text; for a TPU the name of its topology.
            devices: the numbers of replicas and of partitions; those of the header are ignored.
            keeps_code: True if the ending is to have the executable.

        Raises:
            UsageError: if jaxlib or the compiler for GPUs is missing, or a flag is unknown.
        """
        target = {"platform": "cuda", "target_config": target_config, "topology": "1x1x1"}
        if self._platform == "tpu":
            target = {"platform": "tpu", "topology_name": target_config}
        with self._children.one() as child:
            try:
                (status, message), code = child.call(
                    compiled,
                    encode(text),
                    target=target,
                    flags=flags,
                    devices=list(devices),
                    keeps_code=keeps_code,
                )
            except ChildDied as death:
                if unknown := _unknown.search(death.log):
                    raise UsageError(f"this XLA does not know the flags {unknown[1]}") from None
                return Ending.of(death)
            except ChildError as error:
                if error.class_name != "ImportError":
                    raise UsageError(f"{child.python}: {error}") from None
                raise UsageError(
                    f"{child.python} has no GPU compiler ({error}): install "
                    "hlo-lint[gpu-compiler] there (Linux), or give --jax RELEASE"
                ) from None
            return Ending(status, message.strip(), child.log(), b"".join(code))


# ---- in the child


@cache
def _plugin(platform: str) -> Plugin:
    path = plugin_path(platform)
    if path is None:
        raise ImportError(f"no PJRT plugin for {platform}")
    return Plugin(path)


def load_compiler() -> Answer:
    """Load jaxlib, and its CUDA plugin."""
    xla_bindings()
    _plugin("cuda")
    return None, ()


def compiled(
    text: bytes, *, target: dict[str, str], flags: str, devices: list[int], keeps_code: bool = False
) -> tuple[tuple[str, str], Sequence[bytes]]:
    """The status and the message of the compilation of a text."""
    os.environ["XLA_FLAGS"] = flags  # XLA reads them once per process
    try:
        module = module_of_text(text)
    except Exception as refusal:  # absl::Status, as jaxlib raises it
        return ("refused", f"{refusal}"), ()
    plugin, own = _plugin(target["platform"]), None
    if target["platform"] == "tpu":
        pairs = (word.removeprefix("--").partition("=") for word in flags.split())
        own = {name: value or "true" for name, _, value in pairs}
    # The program of a partition: XLA's partitioner refuses its `partition-id`.
    partitioned = b" partition-id(" in text
    error = plugin.compile(module, target, devices, own, keeps_code, partitioned=partitioned)
    return ("error" if error else "ok", error), (plugin.code,)

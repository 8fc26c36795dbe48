"""The hook of Python's start under `hlo-lint exec`: dumps by rank, recorded inputs."""

import importlib
import os
import shutil
import sys

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


def _dump_apart() -> None:
    rank = next((os.environ[name] for name in _RANKS if os.environ.get(name, "").isdigit()), None)
    dumps = os.environ.get("HLO_LINT_DUMPS")
    if rank is not None and dumps:  # the launcher itself has no rank
        del os.environ["HLO_LINT_DUMPS"]
        flags = os.environ.get("XLA_FLAGS", "")
        own = os.path.join(dumps, f"rank{rank}")
        os.environ["XLA_FLAGS"] = flags.replace(dumps, own)
        if "HLO_LINT_INPUTS" in os.environ:
            os.environ["HLO_LINT_INPUTS"] = own
        os.makedirs(dumps, exist_ok=True)
        _log_errors(f"{own}.log")


def _log_errors(log: str) -> None:
    """Copy standard error into a log, also that of native code that ends the process."""
    if not (os.path.exists("/bin/sh") and shutil.which("tee")):
        return  # Windows, or a container with little more than Python
    read, write = os.pipe()
    # Launchers end the process group of a rank: tee has its own, or the last lines are lost.
    # It is not a child either: a program may wait for all of its children.
    shell = os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", 'tee -a "$0" <&3 >&2 &', log],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, read, 3)],
        setpgroup=0,
    )
    os.waitpid(shell, 0)
    os.dup2(write, 2)
    os.close(read)
    os.close(write)


def _give_way() -> None:
    """Import the sitecustomize that this file hides."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    this = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = this


if __name__ == "sitecustomize":
    _dump_apart()
    if recorded_to := os.environ.get("HLO_LINT_INPUTS"):
        hook = importlib.import_module("hlo_lint_recording").RecordsInputs(recorded_to)
        sys.meta_path.insert(0, hook)
    _give_way()

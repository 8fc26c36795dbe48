"""Sets the limits of a child process. It needs nothing but the standard library.

The child may run under an interpreter that has no hlo_lint, and then runs this file by its path.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping


def begin(terms: Mapping[str, int | float | None]) -> None:
    """Set the limits of this process, and have it end with its parent."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _lower(resource.RLIMIT_DATA, terms["memory"])
        # The parent looks at the clock. This is for a child whose parent was killed.
        seconds = terms["seconds"]
        processors = os.cpu_count() or 1
        _lower(resource.RLIMIT_CPU, None if seconds is None else seconds * processors + 1)
    threading.Thread(target=_end_with, args=(terms["parent"],), daemon=True).start()


def _lower(kind: int, value: float | None) -> None:
    import resource

    _, hard = resource.getrlimit(kind)
    if value is not None and (hard == resource.RLIM_INFINITY or value < hard):
        resource.setrlimit(kind, (int(value), hard))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)

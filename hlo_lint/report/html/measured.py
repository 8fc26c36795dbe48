"""Measured time, from profiles beside the dumps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hlo_lint.dumps.artefacts.measured import Measured, find_measured
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.cost_figures import measured_kernels
from hlo_lint.report.costs import measured_table
from hlo_lint.text.errors import HloLintError


class Profiles:
    """The profiles of folders; `troubles` has the errors of unreadable ones."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.troubles: list[str] = []
        self._measured = {folder: self._read(folder) for folder in dict.fromkeys(folders)}

    def _read(self, folder: Path) -> Measured | None:
        try:
            return find_measured(folder)
        except HloLintError as error:
            self.troubles.append(f"measured time: {error}")
            return None

    def table(self, pipeline: Pipeline, folder: Path) -> list[tuple[str, ...]]:
        """A head, and a row for each instruction of a final module; empty without measured time."""
        measured = self._measured[folder]
        if measured is None or pipeline.final is None:
            return []
        try:
            kernels = measured_kernels(pipeline, measured)
        except HloLintError as error:
            self.troubles.append(f"measured time of {pipeline.title}: {error}")
            return []
        return measured_table(kernels) if kernels else []

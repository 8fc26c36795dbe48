"""The JSON Schema of a settings file, from the same declarations that read one.

`schema.json` beside it holds it for the rules of this package; `make docs` writes it.
"""

from __future__ import annotations

import json
from typing import Any

from hlo_lint.apps.settings.keys import KEYS, rule_names


def schema() -> dict[str, Any]:
    """The schema of an `hlo_lint.toml`, or of the table `[tool.hlo_lint]` of a pyproject.toml."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:hlo-lint:settings",
        "title": "Settings of hlo-lint",
        "type": "object",
        "additionalProperties": False,
        "properties": {key.name: {"description": key.doc, **key.kind.schema()} for key in KEYS},
        "$defs": {"rule-or-family": {"enum": list(rule_names())}},
    }


def schema_text() -> str:
    """The schema as the file has it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"

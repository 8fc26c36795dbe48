"""Text of any language: spans, edits, files, errors with a place. Knows no HLO."""

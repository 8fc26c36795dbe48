"""Suppression of findings: comments in the text, configured allowances, baselines."""

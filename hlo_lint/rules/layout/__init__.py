"""Layouts: invariants that passes rely on after layout assignment."""

"""Analyses of a module that several rules share."""

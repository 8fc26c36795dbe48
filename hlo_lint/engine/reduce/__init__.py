"""Reduction: the smallest module that still shows a problem.

`Draft` is a module as records that can be dropped and changed; `transformations` propose smaller
drafts, `interest` decides whether one still shows the problem, and `search` tries them, many
changes at once at first (delta debugging). The words are those of `llvm-reduce`.
"""

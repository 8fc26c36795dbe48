"""Reduction: the smallest module that still shows a problem.

`Draft` holds a module as records that can be dropped and changed; `transformations` propose smaller
drafts, `interest` decides whether a draft still shows the problem, and `search` tries them, many
changes at once at first (delta debugging). The terms are those of `llvm-reduce`.
"""

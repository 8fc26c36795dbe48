"""Kernels of the evaluator: one function for each opcode, on logical arrays of numpy.

| | |
|---|---|
| `arrays` | element types as numpy holds them, bits, and rounding into a type |
| `site` | an instruction as a kernel is made for it |
| `elementwise` | opcodes that map element to element |
| `movement` | opcodes that place elements elsewhere, bitcasts by layout among them |
| `contraction` | dot and convolution |
| `reduction` | reduce, reduce-window, select-and-scatter, sort, top-k |
| `indexing` | gather, scatter, dynamic slices |
| `linear` | Cholesky, triangular solve, Fourier transforms, batch normalization |
| `random` | random bits by Threefry and Philox |
| `custom_calls` | custom calls of libraries, from their configuration |
| `single_device` | collectives whose groups are one device each |
"""

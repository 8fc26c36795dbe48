"""The hunt for bugs of a released XLA: generated modules, judges, and campaigns."""

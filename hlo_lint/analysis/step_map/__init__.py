"""The successors of each instruction in a pass, and the properties that they must keep."""

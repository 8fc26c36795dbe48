"""The successors of each instruction in a pass, with the properties that they must keep."""

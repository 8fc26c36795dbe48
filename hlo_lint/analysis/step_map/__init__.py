"""What a pass did: where each instruction went, and which of its properties must arrive there."""

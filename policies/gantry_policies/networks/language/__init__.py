"""Networks that read words: layers of tokens, the encoder of an instruction, and numbers under it."""

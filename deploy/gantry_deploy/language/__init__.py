"""Instructions in plain words: what a policy of language may be told, and the numbers that its network reads."""

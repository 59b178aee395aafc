"""Imitation: chunks of actions cloned from demonstrations, as a policy or as the base of a residual one."""

"""Unitree robots at motor level, over the DDS topics of their own computer: Go2 and G1."""

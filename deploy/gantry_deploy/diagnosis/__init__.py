"""Diagnosis of robots and of logs: which joint is permuted, which sign is flipped, which frame or scale is wrong."""

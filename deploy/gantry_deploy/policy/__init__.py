"""Inference: ONNX networks, the policy runner, action chunks and recorded reference steps."""

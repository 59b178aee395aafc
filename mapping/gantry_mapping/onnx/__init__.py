"""ONNX graphs that are checked before they are loaded, and stopped when they take too long."""

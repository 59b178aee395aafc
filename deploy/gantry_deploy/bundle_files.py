"""Names of a bundle's files, for code that looks for bundles without reading them."""

from __future__ import annotations

MANIFEST, MODEL, CONTRACT, GOLDEN, CARD = "manifest.json", "policy.onnx", "contract.json", "golden.npz", "card.json"
MAPPER = "mapper.onnx"
"""The mapping network of a policy that looks at a map; a bundle without one is mapped for without a network."""

"""Policy bundles: reading, writing, checking and finding them."""

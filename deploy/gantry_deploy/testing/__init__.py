"""Small contracts and bundles for tests."""

"""Commands on datasets."""

"""Screen of a correction session: a local web page with buttons, and the same facts on a terminal."""

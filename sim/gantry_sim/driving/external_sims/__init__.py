"""Cars in other people's simulators, driven by a bundle through the runtime; no policy is trained in them."""

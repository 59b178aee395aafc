"""The newest maps, images and road scenes that a policy observes."""

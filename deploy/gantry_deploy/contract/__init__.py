"""The contract of a policy: observations, actions, limits and their valid ranges."""

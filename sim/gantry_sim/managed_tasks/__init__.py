"""Parts that tasks of mjlab and of Isaac Lab share: both build environments of managers with terms."""

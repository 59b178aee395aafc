"""Other road users: paths, encounters, decisions, motion and traffic lights."""

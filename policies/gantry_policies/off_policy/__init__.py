"""Off-policy learning: one learner whose switches give SAC, RLPD, WSRL and residual learning over a frozen base."""

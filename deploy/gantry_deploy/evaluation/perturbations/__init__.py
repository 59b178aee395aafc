"""Perturbations of simulated robots: conditions beyond the nominal ones, and episodes of a policy under each."""

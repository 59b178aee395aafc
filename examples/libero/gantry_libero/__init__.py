"""LIBERO's tasks as environments of gymnasium, as tasks ``libero:SUITE``, and as the benchmark ``libero``."""

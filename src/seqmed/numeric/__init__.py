"""Arrays, linear algebra, threads and compiled functions."""

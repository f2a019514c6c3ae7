"""Reports about a plan: memory, cost, mixing and row order, as text and figures."""

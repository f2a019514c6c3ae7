"""Reports about a plan: memory, cost, mixing and order, as text and figures."""

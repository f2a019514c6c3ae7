"""By number: rows that are asked for in any order, one by one or in batches."""

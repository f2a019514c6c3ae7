"""Pages of column chunks: their headers, the data pages they tell of, and what is wrong with them."""

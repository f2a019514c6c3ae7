"""Row selection: filters, predicates and selectors become the rows of a plan."""

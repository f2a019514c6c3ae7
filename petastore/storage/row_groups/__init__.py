"""Row groups: Arrow tables of the columns asked for, verified."""

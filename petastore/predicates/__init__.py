"""Predicates: tests of rows, for `make_reader(predicate=…)`. Pure.

Derive from `PredicateBase`, or take one of those that are here:

| predicate | includes a row |
|---|---|
| `in_set(values, field)` | whose value is one of these |
| `in_intersection(values, field)` | whose array has one of these |
| `in_lambda(fields, function)` | for which a function says so |
| `in_negate(predicate)` | that the predicate does not include |
| `in_reduce(predicates, all)` | that all of them include; with `any`, one of them |
| `in_pseudorandom_split(fractions, index, field)` | whose value hashes into this part of a split |

A missing value is None, and None is a value like others: `in_set` includes it where None is among its values, and
`in_negate` of a predicate includes what the predicate does not. This is how Python reads, and Petastorm; filters
(`petastore.col`) follow SQL instead, where a comparison with a missing value is neither true nor false.
"""

from petastore.predicates.combined import in_negate, in_reduce
from petastore.predicates.function import in_lambda
from petastore.predicates.predicate import PredicateBase
from petastore.predicates.split import in_pseudorandom_split
from petastore.predicates.values import in_intersection, in_set

__all__ = [
    "PredicateBase",
    "in_intersection",
    "in_lambda",
    "in_negate",
    "in_pseudorandom_split",
    "in_reduce",
    "in_set",
]

"""From Spark to a trained model: 1,797 handwritten digits, two synchronous ranks, one held-out accuracy.

`python -m examples.digits`, which is `make demo`. `write` puts scikit-learn's digits through Spark into
Parquet, `train` is what each rank does, `demo` runs the one after the other.
"""

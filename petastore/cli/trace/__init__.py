"""`petastore trace`: the rows of a training step, and the rows, files and labels that occur in loss spikes."""

"""Each defect of Petastorm's as a check that runs against either library: it passes where things go right."""

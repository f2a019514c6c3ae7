"""Programs that call Petastorm's own examples, each with a folder of its own; they run through the switch."""

"""Programs that call Petastorm's own examples, each in its own folder, with petastore imported as petastorm."""

"""What Petastorm wrote, without loading its pickles."""

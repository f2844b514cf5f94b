"""Files: atomic, sealed and locked; and readers of pickles and torch files of other programs."""

"""A few labelled images and many unlabelled ones → labels with their confidence, a page to check them, suggestions."""

"""Layouts, one file each: `recognise` looks at what a container holds, `read` gives its rows by split."""

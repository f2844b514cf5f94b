"""Containers, one file each: `recognise` looks at the first bytes, `read` gives the content as plain arrays."""

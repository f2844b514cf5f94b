"""Kinds of files, recognised by their first bytes, whose content is given as plain arrays in dicts and lists."""

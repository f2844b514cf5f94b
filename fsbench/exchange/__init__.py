"""Features and predictions of other programs: `fsbench import`, `tasks` and `score`.

A file is opened by its container (pickle, torch, npz, …), which gives plain arrays in dicts and lists; a layout then
recognises what they mean (rows with labels, vectors by class, …). Both go by content, never by the file's name.
"""

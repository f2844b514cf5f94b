"""Reports: records on disk and the tables made from them."""

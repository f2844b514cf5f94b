"""Files: whole or not at all, sealed, locked; and readers of what others wrote."""

"""Reading what strangers wrote: no code of theirs runs, and none of their claims is believed."""

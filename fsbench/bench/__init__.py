"""How fast fsbench is on this machine: ratios within one run, never bare seconds, as machines are shared and noisy."""

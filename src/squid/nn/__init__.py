"""Building blocks of several methods, and the documented ones of SQUID's networks."""

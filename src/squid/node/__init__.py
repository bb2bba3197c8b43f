"""SQUID among the machines of a hospital: what takes images from others and answers them."""

"""`python -m squid` is `squid`."""

from squid.cli import main

main()

"""Attacks on the package by kind: each function tries many inputs and counts what came of them."""

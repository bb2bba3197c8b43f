"""SQUID: anomaly detection for radiographs, trained on healthy images only."""

__version__ = "0.1.0"

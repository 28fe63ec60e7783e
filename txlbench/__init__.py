"""Measures how much context language models use, and which design choices give it to them."""

__version__ = "0.1.0"

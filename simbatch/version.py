"""The version, in one place: the build reads it here and every result carries it."""

__version__ = "0.1.0"

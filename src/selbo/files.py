"""Atomic writing of files, for results and models of one's own."""

from selbo._files import replacing

__all__ = ["replacing"]

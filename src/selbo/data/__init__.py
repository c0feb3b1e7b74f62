"""Data sets, read from their sources; nothing is downloaded at import, and nothing is unpickled."""

from selbo.data.digits import NoisyDigits, noisy_digits

__all__ = ["NoisyDigits", "noisy_digits"]

"""What the authors' code does otherwise than the paper says, or than the library would: quirks, each by name."""

from typing import Final

PUBLISHED_SLOPE: Final = 500.0
"""The slope of the paper's soft histogram, in probability space."""

PUBLISHED_PSEUDO_COUNT: Final = 1e-4
"""What the authors' code adds to each Dirichlet parameter."""

PUBLISHED_HISTOGRAM_FLOOR: Final = 1e-6
"""What the authors' code adds to each region of a binary histogram before normalising it."""

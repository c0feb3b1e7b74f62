"""How Hypothesis searches: the same examples every time, so that no run fails by chance.

`SELBO_HYPOTHESIS=search pytest tests/properties` tries other and more examples instead.
"""

import os

from hypothesis import HealthCheck, settings

COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "database": None}

settings.register_profile("fixed", max_examples=100, derandomize=True, **COMMON)
settings.register_profile("search", max_examples=2000, print_blob=True, **COMMON)
settings.load_profile(os.environ.get("SELBO_HYPOTHESIS", "fixed"))

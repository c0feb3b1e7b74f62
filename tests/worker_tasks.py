"""Things for worker processes to do, which they import by name: sleep, wait, fail, die."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from selbo.elicit.refused import RefusedError


def perform(what: str, value: Any = None) -> dict[str, Any]:
    if what == "sleep":
        time.sleep(value)
    elif what == "wait for":
        while not os.path.exists(value):
            time.sleep(0.01)
    elif what == "mark":
        Path(value).touch()
        time.sleep(600)
    elif what == "refuse":
        raise RefusedError("No.", "field")
    elif what == "fail":
        raise ZeroDivisionError
    elif what == "value":
        raise ValueError("`x` must be one")
    elif what == "die":
        os._exit(3)
    return {"process": os.getpid(), "value": value}

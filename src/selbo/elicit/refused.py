"""Refused input: an error that knows its field on the page, and needs no other package."""


class RefusedError(ValueError):
    """Input that cannot be used, with the field of the page that it stands in."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field

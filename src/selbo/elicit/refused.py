"""The error for rejected input, with its field on the page; needs no other package."""


class RefusedError(ValueError):
    """Invalid input, with the field of the page that holds it."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field

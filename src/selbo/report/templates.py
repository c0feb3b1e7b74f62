"""Templates of the HTML pages: files next to the modules. All values are escaped, except drawings."""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@cache
def load_templates(package: str = "selbo.report") -> "Environment":
    """Load the templates of a package; they may extend, include and import those of `selbo.report`.

    Values are escaped unless they are `markupsafe.Markup`; a name without a value is an error.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=ChoiceLoader([PackageLoader(each, "") for each in (package, "selbo.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render_macro(template: str, name: str, *values: Any, **options: Any) -> "Markup":
    """Call a macro of a template of `selbo.report`."""
    markup: Markup = getattr(load_templates().get_template(template).module, name)(*values, **options)
    return markup

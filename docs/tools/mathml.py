"""Turn formulas into MathML: an extension of Python-Markdown, so that a page needs no script to show them.

`pymdownx.arithmatex` marks the formulas of pages and docstrings; latex2mathml converts them. It accepts almost
anything, so whatever it did not understand is looked for here, and stops the build. What browsers do not read from its
output (the MathML 3 attributes of tables and letters) is put in the terms of MathML Core.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Any
from xml.etree import ElementTree as ET

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.postprocessors import Postprocessor

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">(?:\\\((?P<inline>.*?)\\\)|\\\[(?P<block>.*?)\\\])</(?P=tag)>', re.DOTALL
)
ENVIRONMENT = re.compile(r"\\begin\{([^}]*)\}")
ENVIRONMENTS = {"align*", "array", "bmatrix", "cases", "matrix", "pmatrix", "split", "vmatrix"}
CHILDREN = {"mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "msubsup": 3, "munderover": 3, "mroot": 2}
LIMITS = {"max", "min", "lim", "sup", "inf", "arg\u2009max", "arg\u2009min"}
BARS_AND_PRIMES = {"\u2016", "\u2032", "\u2033"}
SYMBOLS = {"\u221e", "\u2202"}  # infinity and the round d are identifiers, though Unicode calls them mathematical signs
SUMS = {"\u2211", "\u220f", "\u22c2", "\u22c3"}
SCRIPTS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
WITHOUT_SPACE = {"|", "\u2016", "/"}
NO_OPERAND = {"mo", "mspace", "mtext"}
CLOSING = {")", "]", "}", "|", "!", "\u2016"}
THIN_SPACE = "0.167em"
HEADING = re.compile(r'<h([1-6])\b[^>]*>(?:(?!</h\1>).)*class="arithmatex"', re.DOTALL)
LAST = 0
"""Priority of what sees the HTML as a whole, with the docstrings in it."""


class FormulaError(ValueError):
    """A formula that cannot be shown as it was meant."""


def to_mathml(latex: str, *, display: bool) -> str:
    """One formula as a `<math>` element; raises FormulaError where any part of it was not understood."""
    latex = re.sub(r"\\(begin|end)\{aligned\}", r"\\\1{align*}", latex.strip())
    latex = re.sub(r"\\mathrm\{(\w)\}", r"{\\mathrm \1}", latex)  # latex2mathml forgets the style of a single letter
    _check_source(latex)
    try:
        text = convert(latex, display="block" if display else "inline")
        math = ET.fromstring(text.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "", 1))
    except Exception as error:  # latex2mathml raises its own errors, StopIteration, IndexError, ...
        raise FormulaError(f"{type(error).__name__}: {error}".rstrip(": ")) from error
    _check_result(math)
    for parent in list(math.iter()):
        _set_letters(parent)
        _set_functions(parent, display=display)
        _set_operators(parent)
        _set_table(parent)
    return ET.tostring(math, encoding="unicode")


def _check_source(latex: str) -> None:
    if unknown := set(ENVIRONMENT.findall(latex)) - ENVIRONMENTS:
        raise FormulaError(f"unknown environment {', '.join(sorted(unknown))}")
    if r"\operatorname*" in latex:
        raise FormulaError(r"\operatorname* is not supported; for the arg max write \argmax")
    depth = 0
    for brace in re.findall(r"(?<!\\)(?:\\\\)*([{}])", latex):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            break
    if depth:
        raise FormulaError("the braces do not match")


def _check_result(math: ET.Element) -> None:
    for element in math.iter():
        text = element.text or ""
        if "\\" in text:
            raise FormulaError(f"unknown command {text}")
        if element.tag == "mi" and text in {"&", "{", "}"}:
            raise FormulaError(f"misplaced {text}")
        if len(element) != CHILDREN.get(element.tag, len(element)):
            raise FormulaError(f"an argument is missing (<{element.tag}> has {len(element)} parts)")


def _set_letters(parent: ET.Element) -> None:
    """Words set upright as one identifier, and styled letters as the characters that Unicode has for them."""
    word: ET.Element | None = None
    for child in list(parent):
        upright = child.tag == "mi" and child.get("mathvariant") == "normal"
        if upright and word is not None:
            word.text = (word.text or "") + (child.text or "")
            word.attrib.pop("mathvariant", None)  # more than one letter is upright by itself
            parent.remove(child)
            continue
        word = child if upright else None
        style = child.get("mathvariant", "normal")
        if style != "normal":
            if child.tag in {"mi", "mn"}:
                child.text = "".join(_styled(letter, style) for letter in child.text or "")
            del child.attrib["mathvariant"]


def _styled(letter: str, style: str) -> str:
    if style == "italic":
        return letter  # a single letter is italic by itself
    name = unicodedata.name(letter).replace("LATIN ", "").replace("GREEK ", "").replace("LETTER ", "")
    try:
        return unicodedata.lookup(f"MATHEMATICAL {style.upper().replace('BOLD-ITALIC', 'BOLD ITALIC')} {name}")
    except KeyError as error:
        raise FormulaError(f"there is no {style} {letter}") from error


def _set_functions(parent: ET.Element, *, display: bool) -> None:
    r"""Names such as \log and \operatorname{KL}: identifiers, with a thin space to an operand but not to a bracket."""
    for index in reversed(range(len(parent))):
        child = parent[index]
        name = child[0] if child.tag in SCRIPTS else child
        if not _is_function(name):
            continue
        if parent.tag in CHILDREN:
            continue  # the base of a script is seen from the parent of the script
        if display and child.tag == "msub" and name.text in LIMITS:
            child.tag = "munder"
        name.tag = "mi"
        name.attrib.clear()
        if index + 1 < len(parent) and parent[index + 1].tag not in NO_OPERAND:
            parent.insert(index + 1, ET.Element("mspace", width=THIN_SPACE))
        if index > 0 and (parent[index - 1].tag not in NO_OPERAND or parent[index - 1].text in CLOSING):
            parent.insert(index, ET.Element("mspace", width=THIN_SPACE))


def _is_function(element: ET.Element) -> bool:
    text = (element.text or "").replace("\u2009", "")
    return element.tag in {"mi", "mo"} and len(text) > 1 and text.isalpha() and element.get("mathvariant") is None


def _is_sign(text: str) -> bool:
    return text in BARS_AND_PRIMES or (len(text) == 1 and unicodedata.category(text) == "Sm" and text not in SYMBOLS)


def _set_operators(parent: ET.Element) -> None:
    """Signs that latex2mathml gives as letters and the other way round, their spaces, limits of sums."""
    before: ET.Element | None = None
    for child in parent:
        if child.tag == "mi" and _is_sign(child.text or ""):
            child.tag, child.text = "mo", (child.text or "").replace("~", "\u223c")
        if child.tag == "mo" and child.text in SYMBOLS:
            child.tag = "mi"
        if child.tag == "mi" and re.fullmatch("[\u0391-\u03a9]", child.text or ""):
            child.set("mathvariant", "normal")  # capital Greek letters stand upright
        if child.tag == "mo" and child.text in WITHOUT_SPACE and child.get("stretchy") != "true":
            child.attrib.update(stretchy="false", lspace="0", rspace="0")
        if child.tag == "mo" and parent.tag == "mover" and child.text == "\u2015":
            child.text = "\u203e"  # the overline that grows
        if child.tag in SCRIPTS and child[0].text in SUMS:
            child.tag = SCRIPTS[child.tag]  # browsers set the limits of a sum inside a line beside it
        after_operator = before is not None and before.tag == "mo" and before.text not in CLOSING
        if child.tag == "mo" and child.text in {"\u2212", "+"} and after_operator:
            child.set("form", "prefix")
        before = child


def _set_table(element: ET.Element) -> None:
    """Alignment of cells as style: browsers do not read `columnalign` and `columnspacing`."""
    if element.tag != "mtable":
        return
    padding = " padding-left: 0; padding-right: 0;" if "columnspacing" in element.attrib else ""
    for cell in element.iter("mtd"):
        if align := cell.attrib.pop("columnalign", None):
            cell.set("style", f"text-align: {align};{padding}")


class Formulas(Postprocessor):
    """Converts the formulas in the HTML of a page or of a docstring."""

    def run(self, text: str) -> str:
        if HEADING.search(text):
            raise FormulaError(f"{self.page}: a heading cannot hold a formula")
        text = FORMULA.sub(self.convert, text)
        if re.search(r'class="arithmatex">(?!<math )', text):
            raise FormulaError(f"{self.page}: a formula was not recognised")
        return text

    @property
    def page(self) -> str:
        """What is converted, as far as Zensical says so."""
        context = "rendering_context"
        return self.md.preprocessors[context].page.path if context in self.md.preprocessors else "a page"

    def convert(self, match: re.Match[str]) -> str:
        latex = html.unescape(match["inline"] or match["block"] or "")
        try:
            math = to_mathml(latex, display=match["tag"] == "div")
        except FormulaError as error:
            raise FormulaError(f"{self.page}: cannot show the formula {latex.strip()!r}: {error}") from error
        return f'<{match["tag"]} class="arithmatex">{math}</{match["tag"]}>'


class MathML(Extension):
    """Wants `pymdownx.arithmatex` with `generic=True` beside it."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.postprocessors.register(Formulas(md), "mathml", LAST)


def makeExtension(**options: Any) -> MathML:  # noqa: N802
    """Called by Python-Markdown."""
    return MathML(**options)

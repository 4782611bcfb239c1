"""A real TrueType font with the letters of a text: each is a box as wide as the others."""

from pathlib import Path

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

_SIDE = 1_000  # units of the em square


def write_font(path: Path, text: str, *, is_embeddable: bool = True) -> Path:
    """Write a font file that has ASCII and the letters of a text, and no others."""
    codes = sorted({*range(0x20, 0x7F), *map(ord, text)} - {0x0A})
    names = {code: f"uni{code:04X}" for code in codes}
    order = [".notdef", *names.values()]
    builder = FontBuilder(_SIDE, isTTF=True)
    builder.setupGlyphOrder(order)
    builder.setupCharacterMap(names)
    builder.setupGlyf({name: _box() for name in order})
    builder.setupHorizontalMetrics({name: (_SIDE // 2, 50) for name in order})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Boxes", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, sTypoDescender=-200, fsType=0 if is_embeddable else 2)
    builder.setupPost()
    path.parent.mkdir(parents=True, exist_ok=True)
    builder.save(path)
    return path


def _box() -> object:
    pen = TTGlyphPen(None)
    pen.moveTo((50, 0))
    for corner in ((450, 0), (450, 700), (50, 700)):
        pen.lineTo(corner)
    pen.closePath()
    return pen.glyph()

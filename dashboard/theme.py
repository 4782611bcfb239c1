"""Colours of the dashboard in light and dark mode, as flags of the Streamlit server."""

from typing import Final

_COMMON: Final = {
    "baseFontSize": "14",
    "baseRadius": "8px",
    "metricValueFontSize": "1.6rem",
    "metricValueFontWeight": "600",
    "headingFontSizes": '["1.5rem", "1.35rem", "1.05rem", "1.05rem", "1rem", "1rem"]',
    "headingFontWeights": "[600, 600, 600, 600, 600, 600]",
    "paddingTop": "1rem",
    "paddingBottom": "2rem",
    "showWidgetBorder": "true",
}
_LIGHT: Final = {
    "primaryColor": "#0f766e",
    "backgroundColor": "#ffffff",
    "secondaryBackgroundColor": "#f6f7f9",
    "textColor": "#0d1420",  # captions have 60 % of its opacity: contrast 4.5:1 on both backgrounds
    "borderColor": "#e3e7ed",
    "grayBackgroundColor": "#f1f3f6",
    "grayTextColor": "#566073",
    "dataframeBorderColor": "#e8ebf0",
    "dataframeHeaderBackgroundColor": "#f6f7f9",
    "dataframeHeaderTextColor": "#566073",
}
_DARK: Final = {
    "primaryColor": "#2dd4bf",
    "backgroundColor": "#0f141b",
    "secondaryBackgroundColor": "#171e28",
    "textColor": "#e4e9f0",
    "borderColor": "#29323f",
    "grayBackgroundColor": "#1d2530",
    "grayTextColor": "#a3afc0",
    "dataframeBorderColor": "#242d39",
    "dataframeHeaderBackgroundColor": "#171e28",
    "dataframeHeaderTextColor": "#97a3b5",
}

# Distinct on white and on near-black (contrast at least 3:1), ordered so that neighbours differ.
GROUP_COLORS: Final = (
    "#2f7ed8",
    "#d9702b",
    "#1f9d76",
    "#b0559f",
    "#c2921a",
    "#7065d8",
    "#d0505c",
    "#2a97a8",
    "#5a9e3d",
    "#c0689a",
    "#5c86a8",
    "#a8764a",
)
# The hue of each: the last five resemble one of the first seven, and are used when all hues are taken.
GROUP_HUES: Final = (0, 1, 2, 3, 4, 5, 6, 2, 2, 3, 0, 1)
REST_COLOR: Final = "#8a94a6"

# good, warning, bad, neutral. Contrast at least 3:1 on both backgrounds; colour is never the only sign.
STATUS: Final = {"good": "#1f9d76", "warn": "#c07d12", "bad": "#d0505c", "neutral": "#8a94a6"}
# Heat maps, from low to high: distinct by lightness alone; transparent for 0.
SEQUENTIAL: Final = (
    (0.0, "rgba(47, 126, 216, 0.06)"),
    (0.25, "rgba(47, 126, 216, 0.35)"),
    (0.5, "rgba(47, 126, 216, 0.65)"),
    (0.75, "rgba(47, 126, 216, 0.9)"),
    (1.0, "#1b4f91"),
)


def theme_flags() -> dict[str, str]:
    """Return both themes as Streamlit options; the viewer's system chooses between them."""
    flags = {f"theme.{name}": value for name, value in _COMMON.items()}
    flags |= {f"theme.light.{name}": value for name, value in _LIGHT.items()}
    return flags | {f"theme.dark.{name}": value for name, value in _DARK.items()}

"""Prefilter of the injection detector: regular expressions of which every injection phrase matches at least one.

An ASCII text that matches none of them has no phrase, role marker or hidden text; a test checks this for every phrase.
RE2 syntax, matched case-insensitively.
"""

from typing import Final

# Words about ignoring instructions (verbs, in languages that ASCII can write); then those about revealing them.
_DROPPED: Final = (
    r"ignor|disreg|forget|overrid|bypass|neglect|discard|attention to|stop\s+(?:follow|obey)|set\s+aside|throw\s+away"
    r"|(?:not|n't|never)\s+(?:follow|obey)|vergiss|vergessen|missacht|ubergeh|oubli|neglige|compte|olvid|descart"
    r"|omiso|esquec|desconsider|dimentic|trascur|negeer|vergeet|zapomnij|pomin|glom|bortse|onceki|yukar|\btum\b|butun"
    r"|abaikan|lupakan|bo\s+qua|quen\s"
)
_REVEALED: Final = (
    r"prompt|instruc|instru[kc]|messages?\b|\brules\b|guideline|configuration|directive|anweisung|invite|consigne"
    r"|istruzioni|mensaje|words?\s+for|verbatim|above|before\s+this|so\s+far|you\s+are"
)
_PERSONA: Final = (
    r"act\s+as|pretend|role-?play|simulate|behave|\bdan\b|anything\s+now|\bmode\b|as\s+of\s+now|from\s+now|henceforth"
    r"|opposite\s+day|evil\s+twin|grandm|fictional|two\s+(?:responses|answers|different|ways)|both\s+ways|jailbr"
)
_LIMITS: Final = (
    r"restriction|filter|censor|safeguard|ethic|moral|(?:content|safety)\s+(?:guideline|polic|limitation|constraint|rule)"
    r"|your\s+(?:[\w'-]+\s+){0,3}(?:polic|limitation|guardrail)"
)
_ADDRESSED: Final = (
    r"\bai\b|\bllms?\b|language\s+model|chatbot|(?:not|n't|never|without)\s+(?:tell|inform|mention|reveal|alert|notify|let)"
    r"|developer|creator|administrator|\badmin|openai|anthropic|override|comply|obey|refus|say\s+no|instead|end\s+of"
)
_ORDERS: Final = (
    r"(?:new|real|actual|true|updated)\s+(?:system\s+)?(?:instruction|task|prompt|objective|directive|rule)"
    r"|\.ssh/|id_rsa|id_ed25519|\.aws/|mcp\.json|\.env\b|\.netrc|\.npmrc|\.kube/|/etc/|from\s+the\s"
    r"|\b(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?)\s+(?:this|any|the|other|another)\s"
    r"|parameter|argument|\bfield\b|note\b|context"
    r"|https?:|@|\burl\b|webhook|\bimage\b|\blink\b|\b(?:call|use|invoke|run|execute)\s+the"
)
_WRITTEN: Final = (
    r"<\||\[/?inst|<</?sys|_of_turn>|\[/?system_prompt|</?system"
    r"|(?:^|\n)[ \t#*>\[-]*(?:system|developer)[^\n]{0,40}[:\]]"
    r"|[a-z0-9+/_-]{24,}|(?:\\x[0-9a-f]{2}){12}|(?:\b(?:0x|%)?[0-9a-f]{2}[\s,:]*){12}|(?:\b\w[ .\-_*|/]{1,3}){11}"
    r"|[a-z][013457@$]+[a-z]|\b[013457@$]{1,2}[a-z]{2}"
)

# Characters that are blanks in phrases but not in RE2: a text with one of them is always checked.
_ODD_BLANKS: Final = r"[\x0b\x1c-\x1f]"

TRACES: Final = tuple(
    f"(?i:{each})" for each in (_DROPPED, _REVEALED, _PERSONA, _LIMITS, _ADDRESSED, _ORDERS, _WRITTEN, _ODD_BLANKS)
)

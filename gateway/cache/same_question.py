"""The form in which two questions are compared: they may share an answer only if their forms are equal.

An embedding hardly sees the order of words, a negation, a unit or a name, so it only proposes questions. Here every
word counts, in its order and with its capitals. Only this is removed or rewritten, in a text of one plain line:

- an opening that asks for an answer ("Could you please tell me"), in front of a question or a request,
- the capital of a first word that is not a name: a question word, an auxiliary, or a verb with its article,
- the full stop at the end of what is not a question, the question mark at the end of what is one without it,
- at the beginning "what's the" and its like, and "I'd like"; the small "i" of "how do i".

A word that the lists lack is compared as it is written, so a gap in them costs a hit and never gives a wrong answer.
"""

import re
import unicodedata
from typing import Final


def _one_of(parts: str) -> str:
    return "(?:" + "|".join(" ".join(part.split()) for part in parts.split("|")) + ")"


# Quotes, colons, line breaks, brackets, operators and emoji surround code, data or a text that is to be worked on: a
# text with any character that is not listed here is compared as it is written.
_PLAIN: Final = re.compile(r"(?:[^\W_]|[ ,.?%$£€&/#+-]|(?<=[^\W\d_])'(?=[^\W\d_]))*")

# A text that speaks of wording may speak of its own: "How many words does this sentence have?"
_WORDING: Final = re.compile(
    r"\b"
    + _one_of(
        r"""words? | letters? | characters? | sentences? | questions? | messages? | prompts? | phrases? | syllables? |
        vowels? | tokens? | spell\w* | punctuat\w* | capitali\w* | \w*case | commas? | dots? | full stops? | periods? |
        worte? | wörtern? | satz | sätzen? | buchstaben? | zeichen | fragen? | nachricht | silben? |
        mots? | lettres? | caractères? | ponctuation | syllabes? |
        palabras? | letras? | caracteres | frases? | oración | preguntas? | mensajes? | sílabas? |
        parol[ae] | letter[ae] | caratteri | frasi | domand[ae] | messaggio? | sillabe |
        palavras? | perguntas? | mensage[mn]s?"""
    )
    + r"\b",
    re.IGNORECASE,
)

# Verbs of requests. Those that are common to two languages ("compare", "explique") are left out: without its opening,
# a text would say nothing of its language.
_VERB: Final = _one_of(
    """add | analyze | answer | calculate | check | convert | create | design | draft | explain | find | fix |
    generate | give | improve | list | make | merge | name | proofread | recommend | rename | replace | rewrite | show |
    simplify | solve | sort | suggest | summarise | summarize | tell | translate | write"""
)
_GERMAN_VERB: Final = _one_of(
    """berechne | beschreibe | beschreiben sie | erkläre | erklären sie | erstelle | erstellen sie | gib | nenne |
    nennen sie | schreibe | schreiben sie | übersetze | übersetzen sie | vergleiche | vergleichen sie | zeig"""
)
_FRENCH_VERB: Final = _one_of(
    """calculez | comparez | décris | décrivez | donne | donnez | écris | écrivez | expliquez | rédige | rédigez |
    résume | résumez | traduis | traduisez"""
)
_SPANISH_VERB: Final = "(?:escribe|escriba|explícame|traduce|traduzca)"
_ITALIAN_VERB: Final = "(?:confronta|dammi|descrivi|elenca|riassumi|scrivi|spiega|spiegami|traduci)"
_PORTUGUESE_VERB: Final = "(?:descreva|escreva|faça|traduza)"

# Beginnings of what is a question with a mark at its end and without. "When it rains", "what a day", "do the dishes"
# and "can tomatoes" may be none.
_BE: Final = "(?:is|are|was|were)"
_HELPING: Final = f"(?:{_BE}|do|does|did|can|could|should|would|will|has|have|had)"
_PERSON: Final = "(?:i|we|you|they|he|she|it)"
_QUESTION: Final = _one_of(
    rf"""(?:what|who|where|why|how) {_HELPING} | when (?:{_BE}|do|does|did|can|should|will) |
    how (?:to|many|much|long|old|far|often) | (?:do|can|could|should|would) (?:i|we|they) |
    (?:{_BE}|does|did) (?:{_PERSON}|there|the|a|an|this|that|these|those|my|your|our|his|her|their)"""
)
_FOREIGN_QUESTION: Final = _one_of(
    """(?:wie|was|wo|wer|wann|warum) (?:ist|sind|war|waren|kann|können|hat|haben|hilft) |
    wie (?:viel|viele|lange|weit|oft|hoch|groß|alt) |
    comment | combien | pourquoi | quel(?:le)?s? (?:est|sont|était|étaient) | qu'est-ce |
    cuál | cuáles | qué | cómo | dónde | quién | quiénes | cuánt[oa]s? | cuándo |
    qual è | quali sono | quanto (?:dura|costa) | quant[ie] | come (?:si|posso|funziona) | cos'è | che cos'è |
    qual é | quais são | quanto custa | quant[oa]s | como (?:posso|faço|funciona) | onde fica | o que é"""
)

# "Can you" with "please" asks for something. Without it, it may ask what somebody is able or allowed to do.
_YOU: Final = "(?:can|could|would|will) you"
# The second word keeps titles out: "I want to know what love is".
_CLAUSE: Final = f"(?:what|who|where|why|how|which) (?:{_HELPING}|{_PERSON}|to|the|a|an|my|your|our|many|much)"
# Openings, and what has to follow each. After the first ones, the text is a question, whatever mark it ends with.
_ASKING: Final = (
    (rf"(?:(?:{_YOU} )?please|{_YOU}) tell me|i(?: would|'d) like to know|i want to know", _CLAUSE),
    (_YOU, f"explain {_CLAUSE}"),
    (f"{_YOU} please", _VERB),
    (
        "(?:kannst du|könntest du|können sie|könnten sie) mir (?:bitte )?sagen,?|ich (?:möchte|würde gerne?) wissen,?",
        "(?:wie|was|wo|wer|wann|warum|welche[mnrs]?)",
    ),
    (
        "(?:peux-tu|pourrais-tu|pouvez-vous|pourriez-vous) me dire|(?:j'aimerais|je voudrais) savoir",
        "(?:comment|combien|pourquoi|où|quand|quel(?:le)?s?|ce que)",
    ),
    (
        "(?:puedes|puede|podrías|podría) decirme|me (?:puedes|puede|podrías|podría) decir|"
        "(?:quiero|quisiera|me gustaría) saber",
        "(?:cuál|cuáles|qué|cómo|dónde|quién|quiénes|por qué|cuánt[oa]s?|cuándo)",
    ),
    (
        "(?:puoi|può|potresti|potrebbe) dirmi|mi (?:puoi|può|potresti|potrebbe) dire|vorrei sapere",
        "(?:come|quale|quali|qual è|cosa|dove|chi|perché)",
    ),
    (
        "(?:pode|podes|poderia|podia) (?:me dizer|dizer-me)|(?:gostaria de|queria|quero) saber",
        "(?:qual é|quais|onde|quem|por que|o que|quanto custa)",
    ),
)
_POLITE: Final = (
    ("(?:please|pls|plz),?", _VERB),
    ("please,", _QUESTION),
    ("bitte,?", _GERMAN_VERB),
    ("s'il (?:te|vous) plaît,?", _FRENCH_VERB),
    ("por favor,?", f"(?:{_SPANISH_VERB}|{_PORTUGUESE_VERB})"),
    ("per (?:favore|piacere),?", _ITALIAN_VERB),
)


def _openings(pairs: tuple[tuple[str, str], ...]) -> str:
    return "|".join(rf"(?:{opening}) (?={follows}\b)" for opening, follows in pairs)


_OPENING: Final = re.compile(
    rf"(?:(?:hi|hello|hey), (?={_QUESTION}\b|{_openings(_ASKING + _POLITE)}))?"
    rf"(?:(?P<asking>{_openings(_ASKING)})|{_openings(_POLITE)})?",
    re.IGNORECASE,
)
_BEGINS_QUESTION: Final = re.compile(rf"(?:{_QUESTION}|{_FOREIGN_QUESTION})\b", re.IGNORECASE)
# "Make", "Dove", "Polish" and "Will" may be names where a text begins.
_FOLDED: Final = re.compile(
    rf"(?:{_VERB} (?:me|a|an|the|my|this|these|how|what|why)|{_GERMAN_VERB}|{_FRENCH_VERB}|{_SPANISH_VERB}|"
    rf"{_ITALIAN_VERB}|{_PORTUGUESE_VERB}|{_QUESTION}|{_FOREIGN_QUESTION}|what|which|whose|how|why)\b",
    re.IGNORECASE,
)
_IS: Final = re.compile(r"^(what|who|where|when|why|how)'s(?= (?:the|a|an|my|your|our|his|her|their)\b)", re.IGNORECASE)
_WOULD: Final = re.compile(r"^[iI]'d(?= like\b)")
# An "i" that is a variable has "does" and "is" in front of it, and "has" and "needs" behind it.
_PRONOUN: Final = re.compile(r"\b((?:do|am) )i(?= )(?! (?:and|or)\b)|^()i(?= (?:am|have|need|want|would like)\b)")
_IN_BETWEEN: Final = re.compile(r"[.?] ")


def compared_form(text: str) -> str:
    """Return a question's normalized form. Two questions get the same cached answer only if their forms are equal."""
    rest = unicodedata.normalize("NFC", text).replace("\u2019", "'")
    rest = rest.removeprefix("¿") if rest.endswith("?") else rest
    if not _PLAIN.fullmatch(rest) or _WORDING.search(rest):
        return text
    opening = _OPENING.match(rest)
    assert opening is not None  # the pattern matches the empty string
    rest = _WOULD.sub("I would", _IS.sub(r"\1 is", rest[opening.end() :]))
    if _FOLDED.match(rest) and rest[1:2].islower():
        rest = rest[:1].lower() + rest[1:]
    rest = _PRONOUN.sub(r"\1\2I", rest)
    is_question = _BEGINS_QUESTION.match(rest) is not None
    if rest.endswith("?"):
        if (is_question or opening["asking"]) and not _IN_BETWEEN.search(rest):
            return rest[:-1]
    elif rest.endswith(".") and not rest.endswith("..") and (opening["asking"] or not is_question):
        return rest[:-1]
    return rest

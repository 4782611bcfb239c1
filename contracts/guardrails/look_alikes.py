"""Letters that pass for ASCII ones: pairs from Unicode's confusables (UTS #39, version 17), by script.

Where only the capital is listed there as alike (Cyrillic "В"), the small letter goes with it: who writes to deceive
uses both. Digits of other scripts and compatibility forms are not here: `unicodedata` knows them.
"""

from typing import Final

_PAIRS: Final = (
    # Cyrillic
    ("авсԁеԍһіјкӏмнортԛѕуѵԝхүԚԜАВСЕЅНІЈКМОРТԌԀХУҮѴЕԞѠ", "abcdeghijklmhoptqsyvwxyQWABCESHIJKMOPTGdXYYVEKW"),
    # Greek
    ("αβγεικνοορτυχωηςσΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳϹϏ", "abyeikvooptuxwncoABEZHIKMNOPTYXcjCK"),
    # Armenian
    ("ոսհօցյզաՏՕՍԼՀ", "nuhogjqwSOULZ"),
    # Latin beyond ASCII, and the phonetic alphabet
    ("ɑıɡȷɩøØđħłŁŧƅƒʟɪʏʀɴᴀʙᴄᴅᴇꜰɢʜᴊᴋᴍᴏᴘꜱᴛᴜᴠᴡᴢʂʐƴǀɗɓɦƙɱɲʈʋ", "aigjioOdhlLtbfLiyrnabcdefghjkmopstuvwzszyldbhkmntv"),
    # Cherokee
    ("ᎠᎡᎢᎥᎪᎫᎬᎳᎷᎻᏀᏃᏎᏔᏙᏚᏞᏟᏢᏦᏮᏴ", "DRTiAJEWMHGZ4WVSLCPK6B"),
    # Lisu
    ("ꓐꓑꓒꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ", "BPdDTGKJCZFMNLSRVHWXYAEIOU"),
    # Dashes, quotes and points
    ("‐‑‒–—―−﹘‘’ʼ′“”„″٫٬·‧", "--------''''\"\"\"\".,.."),
)


def _paired() -> dict[str, str]:
    return {alike: letter for others, letters in _PAIRS for alike, letter in zip(others, letters, strict=True)}


LOOK_ALIKES: Final = _paired()

"""Letters that look like ASCII ones: pairs from Unicode's confusables (UTS #39, version 17), by script.

If only the capital is listed there as similar (Cyrillic "В"), the small letter is included too: attackers use both.
Digits of other scripts and compatibility forms are not here: `unicodedata` has them.
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

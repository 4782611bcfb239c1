"""Whether an answer starts as models' refusals do, in nine languages.

Only the start counts: an answer may quote such words, or be about them. Recognised is an inability to do what was asked
(help, provide, answer, ...), not any regret; other languages are never recognised.
"""

import re
from typing import Final

_LOOKED_AT: Final = 300  # characters at an answer's start
_REST: Final = r"[^.!?\n]{0,80}?"  # the rest of the sentence
_CLAUSE: Final = r"[^.!?\n,;]{0,80}?"
_THEN: Final = r"[,;:.!…–—\-\s]*+"  # between a regret and what follows

_ENGLISH: Final = (
    r"(?:(?:i[’']?m|i am)\s+(?:very\s+|so\s+|truly\s+|really\s+|just\s+an?\s+ai\b)?(?:sorry\b|afraid\b)?|sorry\b|"
    r"(?:my\s+)?(?:sincere\s+)?apologies\b|i\s+apologi[sz]e\b|unfortunately\b|regrettably\b)?"
    + _THEN
    + r"(?:but\s+|that\s+|"
    r"however,?\s+)?(?:as an ai\b[^.]{0,60}?|i(?:[’']m|\s+am) (?:just |only )?an ai\b[^.]{0,40}?)?(?:and\s+)?"
    r"(?:i\s*(?:[’']m|\s+am)?\s*(?:just\s+|simply\s+)?(?:can(?:no|[’'])?t|cannot|unable to|not able to|not allowed to|"
    r"not permitted to|won[’']t(?: be able to)?|will not(?: be able to)?|do(?:n[’']t|"
    r" not) have the ability to)\s+(?:to\s+)?"
    r"(?:help(?!\s+(?:but|falling|feeling|noticing|thinking|wondering)\b)|assist|comply|provide|answer|"
    r"do (?:that|this)|"
    r"fulfil|support|create|generate|discuss|continue|engage|respond|participate|produce|offer (?:advice|"
    r"guidance|help)|"
    r"(?:write|share|give|process|complete|carry out) (?:you\s+)?(?:that|this|such|any|instructions|information|advice|"
    r"medical|legal)\b)|"
    r"i\s*(?:must|have to|need to|[’']ll have to|will have to)\s+(?:respectfully\s+|politely\s+)?(?:decline|refuse)\b|"
    r"(?:that|this)(?:[’']s|\s+is)\s+(?:not\s+)?something\s+(?:that\s+)?i\s*(?:[’']m|"
    r"\s+am)?\s*(?:can(?:no|[’'])?t?|cannot|able to|"
    r"unable to|not able to)\s+(?:help|assist|do|provide|discuss|answer)\b)"
)
_GERMAN: Final = (
    r"(?:(?:es\s+)?tut\s+mir\s+(?:sehr\s+|wirklich\s+|aufrichtig\s+)?leid\b|(?:ich bitte um\s+)?entschuldigung\b|"
    r"entschuldigen\s+sie\b|entschuldige\b|verzeihung\b|ich\s+bedau(?:re|ere)\b|bedauerlicherweise\b|leider\b|sorry\b)?"
    + _THEN
    + r"(?:aber\s+|doch\s+|dass\s+)?"
    r"(?:(?:ich\s+(?:kann|darf|werde|möchte)|"
    + _REST
    + r"\b(?:kann|darf|werde|möchte)\s+ich)\b"
    + _REST
    + r"\b(?:nicht(?!\s+(?:umhin|nur|genug|oft\s+genug)\b)"
    + _CLAUSE
    + r"|kein(?:e[nrsm]?)?\b"
    + _CLAUSE
    + r")\b(?:(?:weiter)?helfen|behilflich\s+sein|unterstützen|beantworten|bereitstellen|erstellen|erfüllen|nachkommen|"
    r"entsprechen|generieren|fortfahren|eingehen|dienen|mitwirken|ausführen|bearbeiten|diskutieren)\b|"
    r"(?:das|dies|so\s+etwas)\s+(?:kann|darf|werde)\s+ich\s+(?:\w+\s+){0,3}?nicht\s+(?:tun|machen|schreiben)\b|"
    r"(?:das|dies|dabei|damit|dazu|hierbei)\s+(?:kann|darf)\s+ich\s+(?:\w+\s+){0,3}?nicht\s*[.!]|"
    r"(?:ich\s+(?:kann|darf|werde)|"
    + _REST
    + r"\b(?:kann|darf|werde)\s+ich)\b"
    + _REST
    + r"\bkeine?\b[^.!?\n,;]{0,40}?\b(?:auskunft|auskünfte|ratschläge|rat|anleitung(?:en)?|"
    r"empfehlung(?:en)?|informationen|tipps|"
    r"hilfe|unterstützung)\b" + _CLAUSE + r"\b(?:geben|erteilen|liefern|anbieten|leisten)\b|"
    r"(?:ich\s+bin|bin\s+ich)\s+(?:\w+\s+){0,3}?nicht\s+(?:dazu\s+)?(?:in\s+der\s+lage|imstande|befugt|berechtigt)\b|"
    r"(?:das|dies|es)\s+ist\s+mir\s+(?:\w+\s+){0,2}?nicht\s+(?:möglich|erlaubt|gestattet)\b|"
    r"(?:ich\s+muss|(?:diese|dieses|diesen|ihre|deine|das|dies)\b[^.!?\n,;]{0,30}?\bmuss\s+ich)\b"
    + _CLAUSE
    + r"\bablehnen\b)"
)
_FRENCH: Final = (
    r"(?:(?:je\s+suis\s+)?(?:vraiment\s+|sincèrement\s+)?(?:désolée?|navrée?)\b|je\s+regrette\b|je\s+m[’']excuse\b|"
    r"(?:toutes\s+)?mes\s+excuses\b|excusez-moi\b|pardon\b|malheureusement\b)?"
    + _THEN
    + r"(?:mais\s+|de\s+vous\s+informer\s+que\s+)?(?:en\s+tant\s+qu[’'](?:ia|intelligence)\b[^.]{0,60}?)?"
    r"(?:je\s+ne\s+(?:(?:te|vous|le|la|les)\s+)?(?:peux|puis|suis|pourrai|"
    r"saurais)\s+(?:\w+\s+)?(?:pas\s+)?(?:en\s+mesure\s+|"
    r"capable\s+|autorisée?\s+)?"
    + _CLAUSE
    + r"\b(?:aider|assister|répondre|fournir|créer|générer|accéder|satisfaire|continuer|"
    r"faire\s+(?:cela|ça|ceci)|traiter|discuter|proposer|rédiger|donner\s+(?:suite|d[’']|de\s|des\s|ces\s|"
    r"cette\s)|participer|honorer)|"
    r"il\s+m[’']est\s+impossible\s+d|je\s+suis\s+dans\s+l[’'](?:incapacité|impossibilité)\s+d|"
    r"je\s+(?:dois|suis\s+(?:contraint|obligé)e?\s+de)\s+(?:décliner|refuser)\b)"
)
_SPANISH: Final = (
    r"(?:lo\s+(?:siento|lamento)\b|disculp[ae]\b|perdon[ae]\b|perdón\b|mis\s+disculpas\b|lamentablemente\b|"
    r"desafortunadamente\b|por\s+desgracia\b|me\s+temo\s+que\b)?"
    + _THEN
    + r"(?:mucho\s*,?\s*)?(?:pero\s+)?(?:como\s+(?:una\s+)?(?:ia|inteligencia)\b[^.]{0,60}?)?"
    r"(?:(?:(?:eso|esto)\s+)?no\s+(?:(?:te|le|os|les|lo|la|se)\s+){0,2}(?:puedo|podré|podría|"
    r"estoy\s+en\s+condiciones\s+de|"
    r"estoy\s+autorizad[oa]\s+(?:a|para)|soy\s+capaz\s+de|me\s+es\s+posible)\s+(?:ayudar|asistir|"
    r"proporcionar|responder|"
    r"contestar|crear|generar|cumplir|ofrecer|continuar|hacer(?:lo)?\b|brindar|dar(?:te|le)?\s+(?:esa|"
    r"información|consejos|instrucciones)|"
    r"facilitar|escribir|participar|atender|discutir|hablar\s+de)|"
    r"(?:lamento|siento)\s+no\s+poder\s+(?:ayudar|asistir|responder|cumplir|atender|proporcionar)|"
    r"(?:debo|tengo\s+que)\s+(?:rechazar|declinar)\b)"
)
_ITALIAN: Final = (
    r"(?:mi\s+(?:di)?spiace\b|(?:sono\s+)?spiacente\b|scus[ai]\b|mi\s+scuso\b|chiedo\s+scusa\b|"
    r"purtroppo\b|sfortunatamente\b|temo\s+che\b)?"
    + _THEN
    + r"(?:ma\s+)?(?:come\s+(?:ia|intelligenza|modello)\b[^.]{0,60}?)?"
    r"(?:(?:(?:questo|ciò)\s+)?non\s+(?:(?:ti|le|vi|lo|la|mi)\s+){0,2}(?:posso|potrò|potrei|"
    r"sono\s+in\s+grado\s+di|riesco\s+ad?|"
    r"sono\s+autorizzat[oa]\s+a|è\s+possibile)\s+(?:aiutar|assister|fornir|risponder|crear|generar|"
    r"soddisfar|continuar|farlo\b|"
    r"fare\s+(?:questo|ciò)|offrir|scriver|discuter|dar(?:ti|le|e)\s+(?:consigli|istruzioni|informazioni)|accontentar|"
    r"partecipar|eseguir|procedere)|"
    r"(?:devo|sono\s+costrett[oa]\s+a)\s+(?:rifiutar|declinar))"
)
_PORTUGUESE: Final = (
    r"(?:desculp[ea]\b|(?:peço|peco)\s+desculpas?\b|sinto\s+muito\b|lamento\b|lamentavelmente\b|"
    r"infelizmente\b|perdão\b)?"
    + _THEN
    + r"(?:mas\s+)?(?:como\s+(?:uma\s+)?(?:ia|inteligência)\b[^.]{0,60}?)?(?:eu\s+)?"
    r"(?:(?:isso\s+)?não\s+(?:(?:te|lhe|o|a|vos)\s+)?(?:posso|consigo|poderei|poderia|sou\s+capaz\s+de|"
    r"estou\s+autorizad[oa]\s+a|"
    r"estou\s+em\s+condições\s+de|me\s+é\s+possível)\s+(?:te\s+|lhe\s+|o\s+|a\s+)?(?:ajud|auxili|fornec|"
    r"respond|cri(?:ar|á)|ger(?:ar|á)|"
    r"atend|continu|fazer\s+isso|faz[eê]-lo|cumpri|oferec|escrev|particip|discut|dar\s+(?:conselhos|"
    r"instruções|informações)|prestar|satisfaz)|"
    r"(?:lamento|sinto)\s+não\s+poder\s+(?:te\s+)?(?:ajud|atend|respond|fornec)|"
    r"(?:devo|tenho\s+de|tenho\s+que)\s+(?:recusar|declinar)\b)"
)
_DUTCH: Final = (
    r"(?:het\s+spijt\s+(?:me|mij)(?:\s+(?:zeer|echt))?\b|(?:mijn\s+)?excuses\b|sorry\b|helaas\b|pardon\b)?"
    + _THEN
    + r"(?:maar\s+|dat\s+)?"
    r"(?:(?:ik\s+(?:kan|mag|zal)|"
    + _REST
    + r"\b(?:kan|mag|zal)\s+ik)\b"
    + _REST
    + r"\b(?:niet(?!\s+(?:alleen|genoeg|vaak\s+genoeg)\b)|geen)\b"
    + _CLAUSE
    + r"\b(?:helpen|beantwoorden|bieden|voldoen|genereren|assisteren|ondersteunen|"
    r"verstrekken|uitvoeren|inwilligen|van\s+dienst|"
    r"verdergaan|ingaan)\b|"
    r"(?:dat|dit)\s+(?:kan|mag)\s+ik\s+(?:\w+\s+){0,3}?niet\s+(?:doen|maken|schrijven)\b|"
    r"(?:dat|dit|daar)\s+(?:kan|mag)\s+ik\s+(?:\w+\s+){0,3}?niet\s*[.!]|"
    r"(?:ik\s+ben|ben\s+ik)\s+(?:\w+\s+){0,2}?niet\s+(?:in\s+staat|bevoegd|gemachtigd)\b|"
    r"(?:dat|dit|het)\s+is\s+(?:voor\s+)?(?:me|mij)\s+(?:\w+\s+)?niet\s+(?:mogelijk|toegestaan)\b|"
    r"(?:ik\s+moet|moet\s+ik)\b" + _CLAUSE + r"\b(?:weigeren|afwijzen)\b)"
)
_CHINESE: Final = (
    r"(?:(?:我)?(?:很|非常|十分|真的)?(?:抱歉|遗憾|遺憾)|对不起|對不起|不好意思)?[，,。！!\s]*(?:但(?:是)?)?"
    r"(?:作为[^，。！？\n]{0,20}[，,])?(?:作為[^，。！？\n]{0,20}[，,])?"
    r"(?:(?:关于|對於|对于|關於)?(?:这|這|那|此|该|該|您的|你的)[^，。！？\n]{0,12}[，,]?)?(?:恕)?(?:我)?(?:们|們)?"
    r"(?:暂时|暫時|目前)?(?:不能|无法|無法|不可以|没办法|沒辦法|不便|没法|沒法|不会|不會)[^。！？\n，,]{0,14}?"
    r"(?:提供|帮助|幫助|帮(?:你|您|到|上)|幫(?:你|您|到|上)|协助|協助|回答|解答|答复|答覆|回應|回应|满足|滿足|继续|繼續|生成|创建|創建|"
    r"完成|支持|讨论|討論|处理|處理|执行|執行|参与|參與)"
)
_JAPANESE: Final = (
    r"(?:(?:大変|誠に|本当に)?(?:申し訳(?:ありません|ございません|ない(?:です|のです)?)|すみません|ごめんなさい|恐れ入ります|恐縮です|残念(?:です|ながら))"
    r"[^。！？\n]{0,60}?(?:できません|出来ません|できかねます|いたしかねます|なれません|られません|えられません|できないのです|できないんです)|"
    r"(?:申し訳(?:ありません|ございません)|すみません|ごめんなさい)?[。、\s]*[^。！？\n]{0,40}?(?:お答え|ご回答|回答|お手伝い|提供|お応え|支援|ご対応|対応|お力に|"
    r"協力)[^。！？\n、]{0,12}?"
    r"(?:できません|出来ません|できかねます|いたしかねます|なれません)|"
    r"[^。！？\n、]{0,30}?(?:には|については|に)(?:答えられません|応えられません|応じられません|お応えできません))"
)
_REFUSAL: Final = re.compile(
    r"[\s*_>\"“”„«»¡「]*+(?:"
    + "|".join((_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _ITALIAN, _PORTUGUESE, _DUTCH, _CHINESE, _JAPANESE))
    + ")",
    re.IGNORECASE,
)


def begins_as_refusal(text: str) -> bool:
    """Return whether a text starts as a refusal does.

    Recognised are English, German, French, Spanish, Italian, Portuguese, Dutch, Chinese and Japanese.
    """
    return _REFUSAL.match(text[:_LOOKED_AT]) is not None

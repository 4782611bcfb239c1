"""Prompt injection phrases in languages other than English: to ignore instructions, and to reveal them."""

from collections.abc import Iterable
from typing import Final

from algorithms.detectors.injection_phrases import Phrase, phrase

_W: Final = r"(?:[\w'’-]{1,24},?\s){0,4}?"


def _drop(language: str, stems: str, form: str, back: int = 0) -> Phrase:
    return phrase(f"override_{language}", 0.85, stems, form, back)


def _reveal(language: str, stems: str, form: str, back: int = 0) -> Phrase:
    return phrase(f"reveal_{language}", 0.75, stems, form, back)


OTHER_LANGUAGES: Final[Iterable[Phrase]] = (
    _drop(
        "de",
        "ignoriere ignorier vergiss vergessen missachte missachten übergehe übergehen",
        rf"\b(?:ignoriere?n?|vergiss|vergessen sie|missachten?|übergehe?n?)\s{_W}(?:vorherigen?|bisherigen?|obigen?"
        rf"|früheren?|vorigen?|vorangegangenen?|ursprünglichen?|alle|deine|ihre|sämtliche)\s{_W}(?:anweisung(?:en)?"
        r"|instruktion(?:en)?|befehle?|regeln|vorgaben|anordnungen|systemprompt)",
    ),
    _reveal(
        "de",
        "zeig zeige verrate nenne gib wiederhole drucke schreibe verrat",
        rf"\b(?:zeige?|verrate?|nenne?|gib|wiederhole?|drucke?|schreibe?)\s{_W}(?:dein(?:en|e)?|den|die|ihre[n]?|deiner)"
        rf"\s{_W}(?:system-?prompt|(?:geheimen?|ursprünglichen?|versteckten?|internen?) (?:anweisungen|instruktionen))",
    ),
    _drop(
        "fr",
        "ignore ignorez oublie oubliez néglige négligez tiens tenez",
        rf"\b(?:ignore[zr]?|oublie[zr]?|néglige[zr]?|ne tiens pas compte|ne tenez pas compte)\s{_W}(?:instructions?"
        rf"|consignes?|directives?|règles|ordres)\s{_W}(?:précédent|antérieur|ci-dessus|initial|d'origine|système|reçues)",
        4,
    ),
    _drop(
        "fr", "oublie oubliez ignore ignorez", r"\b(?:oublie|ignore)[zr]? tout ce qui (?:précède|a été dit|se trouve)"
    ),
    _reveal(
        "fr",
        "révèle révélez montre montrez affiche affichez répète répétez donne donnez écris écrivez",
        rf"\b(?:révèle|révéle|montre|affiche|répète|répéte|donne|écris|écrive)[zr]?\S{{0,5}}\s{_W}(?:prompt système"
        r"|invite système|instructions (?:système|initiales|cachées|secrètes|internes)"
        r"|consignes (?:initiales|cachées|secrètes|système))",
    ),
    _drop(
        "es",
        "ignora ignore ignoren olvida olvide descarta descarte haz",
        rf"\b(?:ignor[ae]n?|olvid[ae]n?|descart[ae]n?|haz caso omiso de)\s{_W}(?:instrucciones|indicaciones|órdenes"
        rf"|reglas|directrices)\s{_W}(?:anteriores|previas|de arriba|iniciales|del sistema|originales)",
    ),
    _drop("es", "olvida ignora", r"\b(?:olvida|ignora) todo lo (?:anterior|que|dicho)"),
    _reveal(
        "es",
        "revela muestra muéstrame imprime repite dime dame escribe",
        rf"\b(?:revela|muestra|muéstra|imprime|repite|dime|dame|escribe)(?:me)?\s{_W}(?:prompt (?:del|de) sistema"
        r"|mensaje del sistema|instrucciones (?:ocultas|secretas|iniciales|internas|del sistema|originales))",
    ),
    _drop(
        "pt",
        "ignora ignore ignorem esqueça esquece desconsidere",
        rf"\b(?:ignor[ea]m?|esqueça|esquece|desconsidere)\s{_W}(?:instruções|ordens|regras|diretrizes|comandos)\s{_W}"
        r"(?:anteriores|prévias|acima|iniciais|do sistema|originais)",
    ),
    _reveal(
        "pt",
        "revele mostre exiba imprima repita diga",
        rf"\b(?:revele|mostre|exiba|imprima|repita|diga)\S{{0,4}}\s{_W}(?:prompt (?:do|de) sistema"
        r"|instruções (?:ocultas|secretas|iniciais|internas|do sistema))",
    ),
    _drop(
        "it",
        "ignora ignorate dimentica dimenticate trascura trascurate",
        rf"\b(?:ignora(?:te)?|dimentica(?:te)?|trascura(?:te)?)\s{_W}(?:istruzioni|indicazioni|ordini|regole|direttive)"
        rf"\s{_W}(?:precedenti|sopra|iniziali|di sistema|originali|ricevute)",
    ),
    _reveal(
        "it",
        "rivela mostra mostrami stampa ripeti dimmi scrivi",
        rf"\b(?:rivela|mostra|stampa|ripeti|dimmi|scrivi)\S{{0,3}}\s{_W}(?:prompt di sistema"
        r"|istruzioni (?:nascoste|segrete|iniziali|interne|di sistema))",
    ),
    _drop(
        "nl",
        "negeer vergeet",
        rf"\b(?:negeer|vergeet)\s{_W}(?:vorige|eerdere|bovenstaande|voorgaande|alle|je|uw)\s{_W}"
        r"(?:instructies|opdrachten|regels|aanwijzingen|richtlijnen)",
    ),
    _drop(
        "pl",
        "zignoruj ignoruj zapomnij pomiń",
        rf"\b(?:z?ignoruj|zapomnij|pomiń)\s{_W}(?:poprzedni|wcześniejsz|powyższ|wszystki)\S{{0,6}}\s{_W}"
        r"(?:instrukcj|poleceni|zasad|wytyczn|reguł)",
    ),
    _drop(
        "sv",
        "ignorera glöm bortse",
        rf"\b(?:ignorera|glöm|bortse från)\s{_W}(?:tidigare|föregående|ovanstående|alla)\s{_W}"
        r"(?:instruktioner|regler|anvisningar|order)",
    ),
    _drop(
        "tr",
        "önceki yukarıdaki tüm bütün",
        r"\b(?:önceki|yukarıdaki|tüm|bütün)\s(?:[\w']{1,20}\s){0,3}?(?:talimat|komut|yönerge|kural)\S{0,10}\s"
        r"(?:[\w']{1,20}\s){0,2}?(?:yok say|unut|göz ardı et|dikkate alma|görmezden gel)",
    ),
    _drop(
        "ru",
        "игнорируй игнорируйте проигнорируй игнорировать забудь забудьте отмени отмените обращай обращайте",
        rf"(?:про)?(?:игнориру(?:й|йте)|игнорировать|забудь(?:те)?|отмени(?:те)?|не обращай(?:те)? внимания на)\s{_W}"
        rf"(?:предыдущ|прежн|выше|прошл|перв|все|сво)\S{{0,8}}\s{_W}(?:инструкци|указани|правил|команд|приказ)",
        4,
    ),
    _reveal(
        "ru",
        "покажи покажите раскрой раскройте выведи выведите повтори повторите напиши напишите назови",
        rf"(?:покажи|раскрой|выведи|повтори|напиши|назови)(?:те)?\s{_W}(?:системн|скрыт|секретн|исходн|внутренн|перв)"
        r"\S{0,6}\s(?:промпт|инструкци|сообщени)",
    ),
    _drop(
        "uk",
        "ігноруй ігноруйте проігноруй забудь забудьте",
        rf"(?:про)?(?:ігноруй|забудь)(?:те)?\s{_W}(?:попередн|всі|вище)\S{{0,6}}\s{_W}(?:інструкці|вказівк|правил)",
        4,
    ),
    _drop(
        "ar",
        "تجاهل تجاهلي انس انسى",
        r"(?:تجاهلي?|انسى?)\s.{0,24}?(?:التعليمات|الأوامر|القواعد|التوجيهات|تعليماتك)",
    ),
    _drop(
        "hi",
        "पिछले पिछली पहले उपरोक्त सभी ऊपर",
        r"(?:पिछले|पिछली|पहले|उपरोक्त|सभी|ऊपर).{0,24}?(?:निर्देश|आदेश|नियम).{0,16}?(?:अनदेखा|नज़रअंदाज़|भूल)",
    ),
    _drop(
        "id",
        "abaikan lupakan",
        rf"\b(?:abaikan|lupakan)\s{_W}(?:instruksi|perintah|aturan|arahan)\s{_W}(?:sebelumnya|di atas|terdahulu|awal)",
    ),
    _drop(
        "vi",
        "bỏ quên",
        r"(?:bỏ qua|quên)\s(?:[\w]{1,12}\s){0,4}?(?:hướng dẫn|chỉ thị|lệnh|quy tắc|chỉ dẫn)\s(?:[\w]{1,12}\s){0,3}?"
        r"(?:trước|trên|ban đầu)",
    ),
)

# Scripts without spaces have no word stems: these are searched wherever one of their stems occurs in a text. A syllable
# of Hangul is up to three characters of plain text.
UNSPACED: Final[Iterable[Phrase]] = (
    phrase(
        "override_zh",
        0.85,
        "忽略 无视 忘记 忘掉 不要理会 忽視 無視 忘記",
        r"(?:忽略|无视|忘记|忘掉|不要理会|忽視|無視|忘記).{0,12}?(?:之前|以上|先前|前面|上述|所有|此前|一切).{0,12}?"
        r"(?:指令|指示|提示|规则|規則|命令|说明|要求|设定|設定)",
    ),
    phrase(
        "reveal_zh",
        0.75,
        "系统提示 系统指令 提示词 系統提示 初始指令 隐藏指令",
        r"(?:显示|透露|输出|告诉我|重复|打印|泄露|给我|給我|說出|说出|展示).{0,12}?"
        r"(?:系统提示|系统指令|提示词|系統提示|初始指令|隐藏指令)",
        24,
    ),
    phrase(
        "override_ja",
        0.85,
        "無視 忘れ 従わない",
        r"(?:以前|これまで|上記|前|今まで|すべて|全て)(?:の)?.{0,12}?(?:指示|命令|ルール|プロンプト|設定|制約).{0,8}?"
        r"(?:無視|忘れ|従わない)",
        48,
    ),
    phrase(
        "reveal_ja",
        0.75,
        "システム 隠された 初期 内部",
        r"(?:システムプロンプト|隠された指示|初期の?指示|内部の?指示).{0,10}?(?:表示|教え|見せ|出力|公開|繰り返)",
    ),
    phrase(
        "override_ko",
        0.85,
        "무시 잊어 따르지",
        r"(?:이전|위의|앞의|지금까지|모든|기존).{0,36}?(?:지시|명령|규칙|프롬프트|지침|설정).{0,24}?(?:무시|잊어|따르지)",
        140,
    ),
    phrase(
        "reveal_ko",
        0.75,
        "시스템 숨겨진 초기",
        r"(?:시스템 ?프롬프트|숨겨진 지시|초기 지시).{0,30}?(?:보여|알려|출력|공개|말해)",
    ),
)

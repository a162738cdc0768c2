"""Short answers that say nothing about what is asked for: "yes, go on", "weiter", "继续"."""

from __future__ import annotations

import re
import unicodedata

MAX_CHARS = 60
"""Longer texts are not read word by word: hardly one of them consists of the words below alone."""

_WORDS_BY_LANGUAGE = {
    "English": (
        "yes yeah yep yup ya y no nope nah n ok okay okey k kk sure right correct exactly agreed fine good great "
        "nice cool perfect awesome thanks thank thx ty please pls go going on ahead continue proceed carry keep "
        "resume next again retry try more do it that this them so and the then now just with as you your i'm we "
        "us me let's lets both all of to is are sounds looks lgtm approved accept accepted confirm confirmed done "
        "ready start begin run alright why explain elaborate option either first second third last a b c d hi "
        "hello hey"
    ),
    "German": (
        "ja jo jep nein nee genau gut super prima passt richtig klar danke bitte mach machen mache weiter "
        "weitermachen fortfahren fahre fort das so es los leg gerne einverstanden nochmal noch einmal warum in "
        "ordnung"
    ),
    "French": (
        "oui non ouais d'accord daccord vas y allez continuez continue poursuis poursuivez merci "
        "bien parfait encore s'il te plaît plait svp vous ça ca pourquoi"
    ),
    "Spanish, Portuguese, Italian": (
        "sí si vale claro sigue siga adelante continúa continua continúe continuar gracias por favor hazlo de "
        "acuerdo bueno sim não nao prossiga segue obrigado obrigada isso pode tá está bem certo vai avanti "
        "procedi grazie prego va bene perfetto perfecto esatto ancora perché"
    ),
    "Dutch, Polish, Swedish, Turkish": (
        "nee graag doe maar verder ga door doorgaan bedankt tak nie dalej kontynuuj dobrze proszę dziękuję "
        "fortsätt tack gärna kör evet hay\u0131r tamam devam et lütfen teşekkürler"
    ),
    "Russian, Ukrainian": (
        "да нет ок окей хорошо ладно давай продолжай продолжайте дальше спасибо пожалуйста ещё еще так далі продовжуй"
    ),
    "Chinese, Japanese, Korean": (
        "是 是的 对 对的 好 好的 好吧 可以 行 继续 繼續 请继续 請繼續 继续吧 下一步 谢谢 谢谢你 嗯 "
        "不 不是 没错 当然 开始 开始吧 はい いいえ ええ うん 続けて 続けてください "
        "お願いします どうぞ そうです ありがとう ありがとうございます 次 了解 "
        "네 예 응 아니요 좋아 좋아요 계속 계속해 계속해줘 계속해주세요 계속하세요 고마워 감사합니다 그래 알겠습니다"
    ),
    "Hindi, Arabic, Hebrew, Vietnamese, Indonesian": (
        "हाँ हां नहीं ठीक है जारी रखें रखो धन्यवाद نعم لا حسنا حسنًا تمام أكمل استمر تابع شكرا כן לא בסדר המשך "
        "תודה vâng có không được tiếp tục cảm ơn ya tidak lanjut lanjutkan oke baik terima kasih"
    ),
}
"""Words that confirm, thank, greet or ask for more, and the small words beside them."""

_WORDS = frozenset(word for words in _WORDS_BY_LANGUAGE.values() for word in words.split())

_INNER = {"'": "'", "\u2019": "'"}
"""The apostrophes, which stand within words."""

_ASCII_WORDS = re.compile(r"[a-z0-9']+")


def is_informative(text: str) -> bool:
    """Return True if a text says something about what is asked for.

    Examples
    --------
    >>> [is_informative(text) for text in ("Yes, go on!", "weiter", "2", "fix the parser")]
    [False, False, False, True]
    """
    text = text.strip()
    if len(text) > MAX_CHARS:
        return True
    words = _words((text if text.isascii() else unicodedata.normalize("NFC", text)).casefold())
    named = [word for word in words if not word.isdigit()]  # a number may name a choice; two of them are a sum
    return len(words) - len(named) > 1 or any(word not in _WORDS for word in named)


def _words(text: str) -> list[str]:
    """Return the words of a text without punctuation and symbols; letters of any script, with their marks."""
    if text.isascii():
        return _ASCII_WORDS.findall(text)
    kept = (char if unicodedata.category(char)[0] in "LMN" else _INNER.get(char, " ") for char in text)
    return "".join(kept).split()

"""What the Hugging Face Hub accepts as the license and the languages of a model.

Licenses are those of https://huggingface.co/docs/hub/repositories-licenses. Languages have codes of ISO 639: those of
two letters (639-1) are listed here; of those of three (639-2 and 639-3), which are thousands, only the form is checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from unmask.support.errors import UserError, nearest

LICENSES = frozenset(
    """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
    afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0
    cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0
    lgpl lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c ms-pl apple-ascl apple-amlr mpl-2.0 odc-by odbl
    openmdw-1.0 openmdw-1.1 openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib pddl lgpl-lr
    deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1 llama3.2 llama3.3 llama4
    grok2-community gemma unknown other
    """.split()  # noqa: SIM905
)
"""Identifiers of licenses on the Hub."""
LANGUAGES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en
    eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv
    ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne
    ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st
    su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    """.split()  # noqa: SIM905
)
"""The codes of two letters (ISO 639-1)."""
SPECIAL = frozenset({"code", "multilingual"})
"""What the Hub accepts in place of a language."""
_THREE = re.compile(r"[a-z]{3}")


def check_license(license: str) -> str:
    """Return an identifier of a license.

    Raises:
        UserError: the Hub does not know it.
    """
    if license not in LICENSES:
        close = nearest(license.lower(), LICENSES)
        hint = close if close.startswith("did") else "write it as https://huggingface.co/docs/hub/repositories-licenses"
        raise UserError(
            f"'{license}' is not the identifier of a license on the Hugging Face Hub",
            remedy=f"{hint} (a license that is not listed is 'other')",
        )
    return license


def check_languages(language: str | Sequence[str]) -> tuple[str, ...]:
    """Return codes of languages.

    Args:
        language: a code, several that commas separate, or a sequence of codes.

    Raises:
        UserError: one is not a code of ISO 639, or there is none.
    """
    codes = language.split(",") if isinstance(language, str) else language
    codes = tuple(dict.fromkeys(code.strip() for code in codes))
    for code in codes or ("",):
        if not is_language(code):
            raise UserError(
                f"'{code}' is not the code of a language",
                remedy="write codes of ISO 639, such as en, or 'multilingual'",
            )
    return codes


def is_language(code: str) -> bool:
    """Return whether the Hub accepts a code of a language."""
    return code in LANGUAGES or code in SPECIAL or _THREE.fullmatch(code) is not None

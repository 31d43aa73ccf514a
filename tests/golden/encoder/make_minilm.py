#!/usr/bin/env python3
"""Writes the golden data of MiniLmParityTest: what sentence-transformers makes of 200 texts.

    make_minilm.py MODEL_DIRECTORY

Out: minilm.json      texts, and their token ids
     minilm.f32       embeddings, float32 little-endian, [200, 384]

Text that looks like special tokens is plain text here (split_special_tokens), as Castor has it by
default. Made with sentence-transformers 6.2.0, transformers 5.23.0, torch 2.11.0 on a CPU:

    uv venv golden && uv pip install --python golden/bin/python \
        sentence-transformers==6.2.0 transformers==5.23.0 torch==2.11.0
    golden/bin/python make_minilm.py .deps/minilm
"""

import json
import pathlib
import random
import sys

from sentence_transformers import SentenceTransformer

COUNT = 200

# One sentence per script, then what tokenizers get wrong.
BY_HAND = [
    "",
    " ",
    "\t\n\r  \u00a0\u2003",
    "a",
    "The quick brown fox jumps over the lazy dog.",
    "THE QUICK BROWN FOX; JUMPS, OVER: THE LAZY DOG!?",
    "Ich möchte gern wissen, ob Straße und STRASSE dasselbe sind; Größe, Übermut, naïve façade.",
    "Où est la bibliothèque ? L'été dernier, il a été très déçu.",
    "¿Dónde está la estación de tren más cercana, señor?",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Tiếng Việt có nhiều dấu thanh: ắ ằ ẳ ẵ ặ, ế ề ể ễ ệ.",
    "İstanbul'da ılık bir İLKBAHAR ığdır",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΐ ΰ Σίσυφος ΣΊΣΥΦΟΣ",
    "שלום עולם, זה טקסט בעברית עם נִקּוּד",
    "مرحبا بالعالم، هذا نصٌّ عربيٌّ مع تشكيل",
    "یہ اردو کا ایک جملہ ہے اور اس میں ۱۲۳ ہندسے ہیں",
    "यह हिन्दी का एक वाक्य है जिसमें संयुक्ताक्षर क्ष त्र ज्ञ हैं",
    "বাংলা ভাষায় একটি বাক্য। தமிழ் மொழி. తెలుగు భాష. ಕನ್ನಡ. മലയാളം",
    "ภาษาไทยไม่มีการเว้นวรรคระหว่างคำ",
    "ព្រះរាជាណាចក្រកម្ពុជា မြန်မာဘာသာ ພາສາລາວ",
    "我能吞下玻璃而不伤身体。中文和English混排,数字123。",
    "私はガラスを食べられます。カタカナ、ひらがな、漢字。ﾊﾝｶｸ",
    "나는 유리를 먹을 수 있어요. 그래도 아프지 않아요. ᄒᆞᆫ글",
    "\U00020000\U0002a6d6\U0002b740\U0002b820\U0002b920\U0002ceaf\uf900\U0002f800 rare ideographs",
    "ქართული ენა Հայերեն լեզու አማርኛ ቋንቋ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ",
    "emoji 😀 😃 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ☃️ ❤️ end",
    "😀😀😀😀😀",
    "math ∑∫√∞≠≤≥ ∀x∈ℝ: x² ≥ 0, ½ + ¼ = ¾, ℵ₀, 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒻𝒶𝓃𝒸𝓎",
    "combining: e\u0301 a\u0308 o\u0302\u0301 n\u0303 Z\u0335\u0321\u0322a\u0336\u0300\u0301l\u0337g\u0338o",
    "\u0301\u0302 leading marks, trailing marks\u0303\u0304",
    "ﬁ ﬂ ﬀ ligatures, ﬄuent, Ǆ ǅ ǆ, ſ long s, K Kelvin, Å Ångström",
    "zero\u200bwidth\u200cjoin\u200der\u2060word\ufeffjoiner\u00adsoft hyphen",
    "bidi \u202eoverride\u202c and \u2066isolate\u2069 marks \u200e\u200f",
    "control \u0001\u0002\u0007\u0008\u001b[31mred\u001b[0m \u007f\u0080\u009f end",
    "nul\u0000inside and \ufffd replacement",
    "private use \ue000\uf8ff\U000f0000\U0010fffd and unassigned \u0378\U000e0fff",
    "line\u2028separator\u2029paragraph\u0085next\u000bvertical\u000cfeed",
    "spaces\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000end",
    "  leading and   inner    and trailing   ",
    "tabs\tand\nnew\r\nlines\n\n\n",
    "[CLS] [SEP] [PAD] [UNK] [MASK]",
    "a sentence with [SEP] inside and [MASK] too",
    "[CLS][SEP][CLS]",
    "[cls] [Sep] [ SEP ] [[SEP]] [SEP",
    "<s> </s> <pad> <mask> <|endoftext|> ##ing ##s # #",
    "[unused0] [unused99]",
    "don't can't won't I'm you're they'll it's o'clock rock'n'roll",
    "e-mail: someone@example.org, https://example.org/path?query=1&other=%20#frag",
    "C++ & C# && || != <= >= -> => :: ;; ## @@ $$ %% ^^ ~~ `` ''",
    "“curly” ‘quotes’ «guillemets» „low“ – en — em … ellipsis • bullet § ¶ † ‡",
    "3.14159265358979 1,000,000 1e-9 0x7fff 12:34:56 2024-02-29 +49 (0)30 123456",
    "١٢٣ ४५६ ๗๘๙ 一二三 Ⅷ ⑨ ⒑",
    "$5.00 €10,50 £3 ¥100 ₹200 ₿1",
    "x" * 99,
    "x" * 100,
    "x" * 101,
    "é" * 100,
    "é" * 101,
    "supercalifragilisticexpialidocious antidisestablishmentarianism pneumonoultramicroscopic",
    "a" * 5000,
    "a " * 300,
    "!" * 400,
    "中" * 300,
    "word " * 253 + "word",
    "word " * 254,
    "word " * 255 + "last",
    "\u0915\u094d" * 200,
    " " * 3000 + "far away" + " " * 3000,
    "\u00a0".join(["non", "breaking", "spaces"]),
    "camelCaseIdentifier snake_case_identifier kebab-case-identifier SCREAMING_CASE",
    '{"json": [1, 2.5, null, true], "key": "value \\"quoted\\""}',
    "def f(x):\n    return x ** 2  # comment\n",
    "<html><body><p class='x'>text</p></body></html>",
    "SELECT * FROM t WHERE a = 'b'; DROP TABLE t; --",
    "\U0001d11e\U0001f9ff\U0001fae0 newer symbols \U0001fac3\U0001faf6",
    "Dvořák–Smetana ≈ Bedřich; Łódź; Đakovo; Ñandú; Ørsted; Þór; Æsir; Œuvre",
]

WORDS = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from "
    "or had an they which one you were all her she there would their we him been has when who "
    "will no more if out so up said what its about than into them can only other time new some "
    "could these two may first then do any like my now over such our man me even most made after "
    "also did many off before must well back through years where much your way down should "
    "because long each just state those people too mr little world still see house work government "
    "against between system school student number water problem service attention encoder vector "
    "quantum photosynthesis jurisprudence unbelievably misunderstanding tokenization"
).split()


def generated(count):
    """Sentences of 1 to about 400 words, some in mixed case and with marks inside."""
    rng = random.Random(20240501)
    for _ in range(count):
        words = rng.choices(WORDS, k=max(1, int(rng.lognormvariate(3.2, 1.0))))
        for i in range(len(words)):
            kind = rng.random()
            if kind < 0.05:
                words[i] = words[i].upper()
            elif kind < 0.10:
                words[i] += rng.choice(",.;:!?")
            elif kind < 0.12:
                words[i] = str(rng.randrange(10**6))
            elif kind < 0.13:
                words[i] += chr(rng.choice([0x301, 0x4E2D, 0x1F600, 0x200B, 0x430]))
        yield " ".join(words)


def main():
    here = pathlib.Path(__file__).parent
    texts = BY_HAND + list(generated(COUNT - len(BY_HAND)))
    model = SentenceTransformer(sys.argv[1], device="cpu")
    model.tokenizer.split_special_tokens = True
    assert model.max_seq_length == 256
    ids = [
        model.tokenizer(text, truncation=True, max_length=model.max_seq_length)["input_ids"]
        for text in texts
    ]
    # One at a time: no padding has a part in the reference.
    rows = [model.encode(text, convert_to_numpy=True) for text in texts]
    for text, row_ids in zip(texts, ids):
        if "[SEP]" in text and len(row_ids) < 200:
            assert row_ids.count(102) == 1, text  # the one that the tokenizer adds
    cases = [{"text": text, "ids": row_ids} for text, row_ids in zip(texts, ids)]
    with open(here / "minilm.json", "w", encoding="ascii") as out:
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        out.write(f"[\n{lines}\n]\n")
    with open(here / "minilm.f32", "wb") as out:
        for row in rows:
            assert row.shape == (384,) and row.dtype == "float32"
            out.write(row.astype("<f4").tobytes())
    print(f"{len(cases)} texts, {sum(map(len, ids))} tokens, longest {max(map(len, ids))}")


if __name__ == "__main__":
    main()

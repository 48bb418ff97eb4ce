"""Writes the golden fixtures of the tokenizer tests with Hugging Face `tokenizers`.

    pip install -r requirements.txt && python generate.py

Everything is seeded: a second run writes the same bytes. Written beside this script:

texts.jsonl             one JSON string per line
<name>/tokenizer.json   two byte-level BPE tokenizers trained here: `mixed_case` (case-insensitive
                        contractions, NFC, a template that adds tokens) and `staged` (digits, CJK
                        runs, then words)
<name>.encode.jsonl     line i: ids of text i; if decoding them does not give the text back, an
                        object {"ids", "text"} instead. Also for `demo`
<name>.plain.jsonl      {"text_idx", "ids"} with special tokens treated as plain text, for the
                        texts where that differs
<name>.decode.jsonl     {"ids", "all", "skip"}: random ids, most of them no valid UTF-8, decoded
                        with and without special tokens
variants.jsonl          {"patch", "texts", "ids"}: `mixed_case` with parts of its tokenizer.json
                        replaced (JSON merge patch), for every behaviour of the format;
                        "with_special" are the ids with special tokens added
"""

import copy
import json
import pathlib
import random
import unicodedata

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
DEMO = HERE.parents[1] / "models" / "demo" / "tokenizer.json"
VOCAB_SIZE = 1200
NUM_DECODES = 400

# Public domain: Lincoln 1863, Laozi, Meng Haoran, the Iroha, Heine 1824, Hugo 1862 (opening words),
# Pushkin 1825, the opening of Genesis in Hebrew, and plain proverbs.
PROSE = """
Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived
in Liberty, and dedicated to the proposition that all men are created equal. Now we are engaged in a
great civil war, testing whether that nation, or any nation so conceived and so dedicated, can long
endure. We are met on a great battle-field of that war. It's what we've got; they'll say I'm wrong,
but you'd agree that he's right and we're done. DON'T SHOUT! WE'VE HEARD YOU, AND WE'LL ANSWER.
道可道,非常道。名可名,非常名。无名天地之始;有名万物之母。故常无欲,以观其妙;常有欲,以观其徼。
春眠不覺曉,處處聞啼鳥。夜來風雨聲,花落知多少。上善若水。水善利万物而不争,处众人之所恶,故几于道。
いろはにほへと ちりぬるを わかよたれそ つねならむ うゐのおくやま けふこえて あさきゆめみし ゑひもせす
カタカナ テスト データ コンピュータ 日本語の文章です。東京と京都。
가는 말이 고와야 오는 말이 곱다. 낮말은 새가 듣고 밤말은 쥐가 듣는다.
Ich weiß nicht, was soll es bedeuten, daß ich so traurig bin; ein Märchen aus alten Zeiten.
En 1815, M. Charles-François-Bienvenu Myriel était évêque de Digne. C'était un vieillard âgé.
Я помню чудное мгновенье: передо мной явилась ты, как мимолётное виденье, как гений чистой красоты.
בראשית ברא אלהים את השמים ואת הארץ. العلم نور والجهل ظلام. الصبر مفتاح الفرج.
सत्यमेव जयते। ทำดีได้ดี ทำชั่วได้ชั่ว. Η αρχή είναι το ήμισυ του παντός. Đi một ngày đàng.
"""

CODE = """
def main(args: list[str]) -> int:
    for i in range(0, 1024):
        if i % 3 == 0 and args:\t# tab comment
            print(f"{i:>8} {args[i // 3]!r}")
    return 0


#include <vector>
template <class T> T sum(const std::vector<T>& v) {\r\n  T s{};\r\n\
  for (auto x : v) s += x;\r\n  return s;\r\n}
SELECT name, COUNT(*) FROM users WHERE id >= 100 AND created_at < '2024-01-31' GROUP BY name;
{"key": [1, 2.5, -3e10, null, true], "nested": {"a": "b\\n"}}
<div class="x">a &amp; b</div> http://example.com/a/b?c=d&e=f#g  x = y * (z + 1) / 2 - w ** 3;
3.14159265358979323846 1,000,000 0xDEADBEEF 12:34:56 2024-01-31 555-0123
"""

SPECIALS = ["<|endoftext|>", "<|user|>", "<|assistant|>", "[gMASK]", "<sop>", "<think>", "</think>"]
# Matched with every flag the format has; only in the trained tokenizers.
FLAGGED = [
    dict(content="<left>", lstrip=True),
    dict(content="<right>", rstrip=True, special=True),
    dict(content="<both>", lstrip=True, rstrip=True),
    dict(content="word", single_word=True),
    dict(content="caf\u00e9!", normalized=True),
    dict(content="e\u0301tude", normalized=True),
    dict(content="<|user|>s", special=True),
    dict(content="\u00e9\u00e8", special=False),
    dict(content="\uff5cend\u2581of\uff5c", special=True),
]

MIXED_CASE_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
STAGED_SPLITS = [
    r"\p{N}{1,3}",
    r"[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(use_regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def train(name, pre_tokenizer, normalizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=1,
    )
    tokenizer.train_from_iterator((PROSE + CODE).splitlines(keepends=True) * 2, trainer)
    document = json.loads(tokenizer.to_str())
    next_id = len(document["model"]["vocab"])
    flags = ["single_word", "lstrip", "rstrip", "normalized", "special"]
    for token in [dict(content=c, special=True) for c in SPECIALS] + FLAGGED:
        entry = {"id": next_id, "content": token["content"]}
        entry.update({flag: token.get(flag, False) for flag in flags})
        document["added_tokens"].append(entry)
        next_id += 1
    if name == "mixed_case":
        document["post_processor"] = template(document, ["[gMASK]", "<sop>"], ["<|endoftext|>"])
    (HERE / name).mkdir(exist_ok=True)
    path = HERE / name / "tokenizer.json"
    path.write_text(json.dumps(document, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    return document


def template(document, before, after):
    ids = {token["content"]: token["id"] for token in document["added_tokens"]}
    item = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [*map(item, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(item, after)],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in before + after
        },
    }


# ---- texts --------------------------------------------------------------------------------------

HAND_WRITTEN = [
    "", " ", "  ", "\n", "\r\n", "\t", "a", " a", "a ", "  a", "a  b", "a   b", "\n\n\na",
    "a\n \n b",
    " \n", "  \n  \n", "a \r\n\r\n b", "x\u00a0y", "x\u3000y", "x\u2028y\u2029z", "x\u180ey",
    "x\u0085y",
    "\u200b\u200b", "\ufeffbom", "a\u0000b", "\u0001\u0002\u007f", "\ufffd\ufffe\uffff",
    "\U0010ffff\U000f0000",
    "I'm you'll we've he's they'd can't you're", "I'M YOU'LL WE'VE HE'S THEY'D CAN'T YOU'RE",
    "'s't're've'm'll'd", "''s '' 'S' 'Ll'lL", "it'\u017f 'T\u212a", "don\u2019t can\u2019t",
    "1", "12", "123", "1234", "1234567890" * 12, "1 22 333 4444", "3.14159", "1,234,567.89",
    "\u0661\u0662\u0663\u0664",
    "\u00bd\u00b2\u2167\u3007\u4e00\u4e8c", "\uff11\uff12\uff13\uff14", "v1.2.3-rc4+567", "0x1F600",
    "caf\u00e9 cafe\u0301 caf\u00e9! cafe\u0301!", "\u1e9b\u0323 \u1e9b\u0323",
    "\u00c5 A\u030a \u212b", "e\u0301tude \u00e9tude",
    "\u1100\u1161\u11a8 \uac01 \uac00\u11a8", "q\u0307\u0323 q\u0323\u0307",
    "a\u0315\u0300\u05ae\u0062",
    "\u0344 \u0958 \u2126 \ufb1d \uf900", "\u0f71\u0f72\u0f74 \u0f73", "a" + "\u0301" * 40,
    "o" + "\u0323\u0307" * 20,
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f44d\U0001f3fd \u2764\ufe0f \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7",
    "#\ufe0f\u20e3 \U0001f3f4\U000e0067\U000e0062\U000e007f",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u4f60\u597d123\u4e16\u754cabc",
    "\u65e5\u672c\u8a9e\u30c6\u30b9\u30c8\u3072\u3089\u304c\u306a",
    "\ud55c\uad6d\uc5b4 \ud14c\uc2a4\ud2b8", "\u9fa5\u9fa6\u9fff\u3400\U00020000",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u200f123\u200e",
    "\u202ereversed\u202c",
    "<|user|>hello<|assistant|><think>hm</think>", "[gMASK]<sop><|user|>s",
    "<|user|><|user|>s<|user|>sx", "<|user <|user| <|<|user|>",
    "<|endoftext|><|endoftext|>", "a <|endoftext|> b", "<|END|>", "<|\uff55ser|>",
    "<|mask|><|reserved_0|>",
    "a  <left>  b", "a  <right>  b", "a \u3000<both>\n\t b", "<left><right><both>",
    " <left> <left> ", "<right> <left>", "<right> <right> <both> <both>",
    "word", "a word b", "sword", "words", "word.", "_word", "\u00e9word", "word\u0301",
    "word\u200d", "word\u00b2", " word word wordword word", "\u6c34word",
    "\u00e9\u00e8", "x\u00e9\u00e8y", "\uff5cend\u2581of\uff5c \uff5cend\u2581of",
    "e\u0301\u00e8 \u00e9e\u0300",
    "if (x == 1) {\n    return x;\n}\n", "\tfoo\t\tbar", "a=b;c=d", "----====####", "...!!!???",
    "$%^&*()_+{}|:<>?", "a/b\\c", "http://x.y/z?a=b&c=d",
    "!important @user #tag $var %d &amp; *p (x) +y ,z -w .e /r :t ;y <u =i >o ?p "
    "[a ]s ^d _f `g {h |j }k ~l \"m 'n",
    "CamelCaseWord snake_case_word SCREAMING_CASE", "A" * 200, "ab" * 150, "\u6c34" * 120,
    " " * 300, "\n" * 120, "=" * 200, " \n" * 60, "\U0001f600" * 40, "a " * 100,
    "the " * 60, "The quick brown fox jumps over the lazy dog.",
    "x" * 47 + " " + "y" * 48 + " " + "z" * 49,
]  # fmt: skip


def is_stable(character):
    """Assigned in the Unicode version both engines know, the same under both NFC tables."""
    if unicodedata.category(character) in ("Cn", "Cs", "Co"):
        return False
    # U+0345 has the highest combining class: a mark behind it moves before it.
    probes = [character, "a\u0345" + character]
    return all(
        normalizers.NFC().normalize_str(probe) == unicodedata.normalize("NFC", probe)
        for probe in probes
    )


def make_texts():
    rng = random.Random(20240131)
    everything = [c for c in map(chr, range(0x110000)) if is_stable(c)]
    planes = [
        [chr(c) for c in range(0x20, 0x7F)],
        [c for c in everything if 0xA0 <= ord(c) < 0x250],
        [c for c in everything if 0x300 <= ord(c) < 0x370] + list("aeiouqAEIOU"),
        [c for c in everything if 0x370 <= ord(c) < 0x600],
        [c for c in everything if 0x600 <= ord(c) < 0x1000],
        [c for c in everything if 0x1100 <= ord(c) < 0x1200 or 0xAC00 <= ord(c) < 0xAC80],
        [c for c in everything if 0x1E00 <= ord(c) < 0x2C00],
        [c for c in everything if 0x3000 <= ord(c) < 0x3100 or 0x4E00 <= ord(c) < 0x5000],
        [c for c in everything if 0x1F300 <= ord(c) < 0x1FB00] + ["\u200d", "\ufe0f", "\U0001f3fd"],
        list(" \t\n\r\x0b\x0c\x1c\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000\u180e\u200b"),
        list("0123456789\u0660\u0966\u00b2\u00bd\u2160\uff10\U0001d7ce"),
        everything,
    ]
    lines = [line for line in (PROSE + CODE).splitlines() if line]
    words = (PROSE + CODE).split()
    flagged = [token["content"] for token in FLAGGED]
    endings_and_blanks = ["'s", "'LL", " ", "  ", "\n", "\r\n", " \n"]
    fragments = words + SPECIALS * 8 + flagged * 8 + endings_and_blanks * 20

    def from_plane():
        return "".join(rng.choice(rng.choice(planes)) for _ in range(rng.randint(1, 24)))

    def from_one_plane():
        plane = rng.choice(planes)
        return "".join(rng.choice(plane) for _ in range(rng.randint(1, 32)))

    def from_fragments():
        sep = rng.choice(["", "", " "])
        return sep.join(rng.choice(fragments) for _ in range(rng.randint(1, 12)))

    def from_line():
        line = rng.choice(lines)
        begin = rng.randrange(len(line))
        form = rng.choice(["NFC", "NFD"])
        return unicodedata.normalize(form, line[begin : begin + rng.randint(1, 120)])

    def from_bytes():
        made = bytes(rng.randrange(256) for _ in range(rng.randint(1, 60)))
        return made.decode("utf-8", "ignore")

    makers = [from_plane, from_one_plane, from_fragments, from_fragments, from_line, from_bytes]
    texts = HAND_WRITTEN + lines
    while len(texts) < 2400:
        texts.append(rng.choice(makers)())
    return texts


# ---- fixtures -----------------------------------------------------------------------------------


def write_lines(name, values):
    with open(HERE / name, "w", encoding="utf-8", newline="\n") as file:
        for value in values:
            file.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def ids_of(tokenizer, text, add_special_tokens=False):
    return tokenizer.encode(text, add_special_tokens=add_special_tokens).ids


def write_tokenizer_fixtures(name, document, texts):
    tokenizer = Tokenizer.from_str(json.dumps(document))
    encoded = [ids_of(tokenizer, text) for text in texts]
    decoded = [tokenizer.decode(ids, skip_special_tokens=False) for ids in encoded]
    write_lines(
        f"{name}.encode.jsonl",
        (i if d == t else {"ids": i, "text": d} for t, i, d in zip(texts, encoded, decoded)),
    )
    tokenizer.encode_special_tokens = True
    plain = [ids_of(tokenizer, text) for text in texts]
    write_lines(
        f"{name}.plain.jsonl",
        ({"text_idx": i, "ids": p} for i, (p, e) in enumerate(zip(plain, encoded)) if p != e),
    )
    rng = random.Random(7)
    size = tokenizer.get_vocab_size()
    added = [token["id"] for token in document["added_tokens"]]
    pools = [range(256), range(size), added + list(range(150, 256)), range(size + 50)]
    decodes = []
    for _ in range(NUM_DECODES):
        pool = rng.choice(pools)
        ids = [rng.choice(pool) for _ in range(rng.randint(0, 20))]
        decodes.append({
            "ids": ids,
            "all": tokenizer.decode(ids, skip_special_tokens=False),
            "skip": tokenizer.decode(ids, skip_special_tokens=True),
        })  # fmt: skip
    write_lines(f"{name}.decode.jsonl", decodes)


def variants(document):
    byte_level_json = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    bytes_only = {**byte_level_json, "use_regex": False}
    sequence = lambda *steps: {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, bytes_only]}
    }
    split_json = lambda pattern, behavior, invert: {
        "type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert
    }  # fmt: skip
    behaviors = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    patterns = [
        {"Regex": r"\s"}, {"Regex": r"\s+"}, {"Regex": r"\d*"}, {"Regex": r"[aeiou]|(?=n)"},
        {"String": " "}, {"String": "an"},
    ]  # fmt: skip
    for pattern in patterns:
        for behavior in behaviors:
            for invert in (False, True):
                yield sequence(split_json(pattern, behavior, invert))
    for pattern in [
        r"\p{Han}+|\p{Hiragana}+", r"(?<=a)n|(?<!a)d", r"\u0061|[\u00e8-\u00ea]",
        r"a++|(?>b|bb)b|\x{63}", r"\P{L}{2,}|\p{^N}",
        r"(?i:K|[x-z])+|\S{2,}?", r"(?i)THE|(?-i:Go)", r"[^\S\n]+|[\S]{5}", r"\At", r".{3}|\n",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|\s+",
    ]:  # fmt: skip
        yield sequence(split_json({"Regex": pattern}, "Isolated", False))
    for individual in (False, True):
        digits = {"type": "Digits", "individual_digits": individual}
        yield sequence(digits)
        yield sequence(split_json({"Regex": r"\p{L}+"}, "Isolated", False), digits)
    for prefix in (False, True):
        for use_regex in (False, True):
            options = {"add_prefix_space": prefix, "use_regex": use_regex}
            yield {"pre_tokenizer": {**byte_level_json, **options}}
    yield {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        split_json({"String": " "}, "Removed", False),
        {**byte_level_json, "add_prefix_space": True}]}}  # fmt: skip
    yield {"model": {"ignore_merges": True}}
    # A token no merge leads to: only taken as a whole.
    yield {"model": {"ignore_merges": True, "merges": document["model"]["merges"][:200]}}
    yield {"model": {"ignore_merges": False, "merges": document["model"]["merges"][:200]}}
    yield {"model": {"merges": [" ".join(m) for m in document["model"]["merges"]]}}
    yield {"normalizer": None}
    yield {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}}
    yield {"post_processor": None}
    yield {"post_processor": {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        template(document, ["<|user|>"], [])]}}  # fmt: skip
    yield {"decoder": {"type": "Sequence", "decoders": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "Fuse"}]}}  # fmt: skip
    for flag in ("normalized", "single_word", "lstrip", "rstrip"):
        tokens = copy.deepcopy(document["added_tokens"])
        for token in tokens:
            token[flag] = not token[flag]
        yield {"added_tokens": tokens}


def merge_patch(target, patch):
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


# What a patch replaces as a whole: merging into the old component would mix two types.
COMPONENTS = ["pre_tokenizer", "normalizer", "post_processor", "decoder", "added_tokens"]


def write_variants(document, texts):
    rng = random.Random(11)
    base_texts = [
        "", " a banana and  an  onion\nthe end. ", "no1 22 333x4444 \u00bd\u0663",
        "The Go\u212a xYz THE \u017f\u00df word",
        "\u6c34\u3001\u6c34\u3042\u3042\u30ab \u00e9e\u0301\u00e8",
        "a <left> b <right> c <both> d word swords word",
        "cafe\u0301! caf\u00e9! e\u0301tude \u00e9tude <|user|>s\u00e9\u00e8",
        "ab abb bbb aaan ccc \u180e \t\n",
    ]  # fmt: skip
    rows = []
    for patch in variants(document):
        patched = {k: v for k, v in document.items() if not (k in COMPONENTS and k in patch)}
        patched = merge_patch(patched, patch)
        for key in COMPONENTS:
            patched.setdefault(key, [] if key == "added_tokens" else None)
        tokenizer = Tokenizer.from_str(json.dumps(patched))
        chosen = base_texts + rng.sample(texts, 12)
        rows.append({
            "patch": patch,
            "texts": chosen,
            "ids": [ids_of(tokenizer, text) for text in chosen],
            "with_special": ids_of(tokenizer, chosen[1], add_special_tokens=True),
        })  # fmt: skip
    write_lines("variants.jsonl", rows)


def main():
    texts = make_texts()
    write_lines("texts.jsonl", texts)
    mixed_case = train(
        "mixed_case",
        pre_tokenizers.Sequence([split(MIXED_CASE_SPLIT), byte_level()]),
        normalizers.NFC(),
    )
    staged = train(
        "staged",
        pre_tokenizers.Sequence([*map(split, STAGED_SPLITS), byte_level()]),
        None,
    )
    documents = {
        "demo": json.loads(DEMO.read_text(encoding="utf-8")),
        "mixed_case": mixed_case,
        "staged": staged,
    }
    for name, document in documents.items():
        write_tokenizer_fixtures(name, document, texts)
    write_variants(mixed_case, texts)


if __name__ == "__main__":
    main()

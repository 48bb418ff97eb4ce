"""Turns the King James Bible of Debian's `bible-kjv` into a tokenizer and token ids.

Written to the output directory:

tokenizer.json  byte-level BPE of 4,096 entries (16 of them special), Hugging Face format
train.npy       int32 [num_tokens]: every chapter behind an end-of-text token, in the book's order
val.npy         the same of the held-out chapters: every 40th, beginning with the 18th
held_out.txt    the text of val.npy: per chapter a heading line and a line with all its verses

Nothing is random: a second run writes the same bytes.
"""

import argparse
import collections
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import regex
from tokenizers import Tokenizer

WHOLE_BOOK = "gen1:1-rev22:21"
VOCAB_SIZE = 4096
MIN_PAIR_COUNT = 2  # a pair seen once is no regularity
FIRST_HELD_OUT, HELD_OUT_STRIDE = 17, 40

# How GLM-4 and its successors cut text into pieces; merges never cross a piece.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END_OF_TEXT = "<|endoftext|>"
NAMED_SPECIALS = [
    END_OF_TEXT,
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "[gMASK]",
    "<sop>",
    "<|mask|>",
]
NUM_SPECIALS = 16


def read_bible():
    """The output of the `bible` program for the whole book, prompts included."""
    try:
        result = subprocess.run(
            ["bible"], input=f"{WHOLE_BOOK}\nq\n", capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        raise SystemExit(
            "prepare.py: there is no program `bible`; install Debian's bible-kjv and"
            " bible-kjv-text, or give its saved output with --raw"
        ) from None
    return result.stdout


def read_chapters(raw):
    """Output of `bible` -> [chapter]: its heading, a newline, its verses in one line, a newline.

    A verse begins with two spaces and its number, and its further lines are not indented; verse
    numbers are dropped.
    """
    book = raw.rpartition(f"{WHOLE_BOOK}\n")[2]  # before it: the greeting and the first prompt
    chapters = []
    for line in map(str.rstrip, book.split("\n")):
        if line.startswith("bible(KJV)"):
            continue
        if verse := re.match(r"  \d+ (.*)$", line):
            chapters[-1][1].append(verse.group(1))
        elif re.match(r"[1-3A-Z][A-Za-z ]+ \d+$", line):
            chapters.append((line, []))
        elif line and chapters and chapters[-1][1]:
            chapters[-1][1][-1] += " " + line
    return [f"{heading}\n{' '.join(verses)}\n" for heading, verses in chapters if verses]


def byte_symbols():
    """[256] the printable character that stands for each byte in a byte-level vocabulary.

    Printable bytes stand for themselves, the others take the code points from 256 on.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    symbols, next_code = [], 256
    for byte in range(256):
        if byte in printable:
            symbols.append(chr(byte))
        else:
            symbols.append(chr(next_code))
            next_code += 1
    return symbols


def merge_pair(symbols, pair):
    """`symbols` with every occurrence of `pair`, from the left, replaced by one symbol."""
    merged, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i : i + 2]) == pair:
            merged.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            merged.append(symbols[i])
            i += 1
    return merged


class PairCounts:
    """How often each pair of neighbouring symbols occurs, kept up to date while words change."""

    def __init__(self, words):
        """words: [(symbols, count)]."""
        self.words = words
        self.counts = collections.Counter()
        self.words_with = collections.defaultdict(set)  # pair -> indices into words
        for word_idx in range(len(words)):
            self.add(word_idx)

    def add(self, word_idx):
        symbols, count = self.words[word_idx]
        for pair in zip(symbols, symbols[1:]):
            self.counts[pair] += count
            self.words_with[pair].add(word_idx)

    def remove(self, word_idx):
        symbols, count = self.words[word_idx]
        for pair in zip(symbols, symbols[1:]):
            self.counts[pair] -= count
            if self.counts[pair] <= 0:
                del self.counts[pair]
            self.words_with[pair].discard(word_idx)

    def most_frequent(self):
        """-> (pair, count); of equals the pair that sorts last, so that the result is unique."""
        return max(self.counts.items(), key=lambda item: (item[1], item[0]))

    def merge(self, pair):
        for word_idx in list(self.words_with[pair]):
            self.remove(word_idx)
            symbols, count = self.words[word_idx]
            self.words[word_idx] = (merge_pair(symbols, pair), count)
            self.add(word_idx)


def train_bpe(chapters, vocab_size):
    """-> (vocab {symbol: id}, merges [(left, right)])."""
    symbols = byte_symbols()
    piece_pattern = regex.compile(SPLIT_PATTERN)
    pieces = collections.Counter()
    for chapter in chapters:
        pieces.update(piece_pattern.findall(chapter))
    pairs = PairCounts([([symbols[b] for b in p.encode()], n) for p, n in pieces.items()])
    vocab = {symbol: i for i, symbol in enumerate(symbols)}
    merges = []
    while len(vocab) < vocab_size:
        pair, count = pairs.most_frequent()
        if count < MIN_PAIR_COUNT:
            raise SystemExit(f"prepare.py: the text is too short for {vocab_size} entries")
        merges.append(pair)
        vocab.setdefault("".join(pair), len(vocab))
        pairs.merge(pair)
        if len(merges) % 500 == 0:
            print(f"bpe: {len(vocab)} of {vocab_size} entries, pair count {count}", flush=True)
    return vocab, merges


def special_token(token_id, content):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token_id, "content": content, **flags, "special": True}


def byte_level(add_prefix_space, trim_offsets, use_regex):
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": trim_offsets,
        "use_regex": use_regex,
    }


def tokenizer_description(vocab, merges):
    """The contents of tokenizer.json; the special tokens take the ids behind the vocabulary."""
    specials = NAMED_SPECIALS + [
        f"<|reserved_{i}|>" for i in range(NUM_SPECIALS - len(NAMED_SPECIALS))
    ]
    split = {
        "type": "Split",
        "pattern": {"Regex": SPLIT_PATTERN},
        "behavior": "Isolated",
        "invert": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special_token(len(vocab) + i, s) for i, s in enumerate(specials)],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [split, byte_level(False, True, False)],
        },
        "post_processor": byte_level(False, False, False),
        "decoder": byte_level(True, True, True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(pair) for pair in merges],
        },
    }


def encode_chapters(tokenizer, chapters):
    """-> int32 [num_tokens], every chapter behind an end-of-text token."""
    end_of_text = tokenizer.token_to_id(END_OF_TEXT)
    encoded = tokenizer.encode_batch(chapters)
    return np.concatenate([np.array([end_of_text, *e.ids], np.int32) for e in encoded])


def write_text(path, text):
    path.write_text(text, encoding="utf-8", newline="\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--raw", type=Path, help="saved output of `bible`; default: run it")
    parser.add_argument("--out", type=Path, default=Path("data"), help="output directory")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    raw = arguments.raw.read_text(encoding="utf-8") if arguments.raw else read_bible()
    chapters = read_chapters(raw)
    print(f"{len(chapters)} chapters, {sum(map(len, chapters))} characters", flush=True)

    vocab, merges = train_bpe(chapters, VOCAB_SIZE - NUM_SPECIALS)
    path = arguments.out / "tokenizer.json"
    write_text(path, json.dumps(tokenizer_description(vocab, merges), ensure_ascii=False))
    tokenizer = Tokenizer.from_file(str(path))

    held_out_idx = set(range(FIRST_HELD_OUT, len(chapters), HELD_OUT_STRIDE))
    held_out = [chapter for i, chapter in enumerate(chapters) if i in held_out_idx]
    kept = [chapter for i, chapter in enumerate(chapters) if i not in held_out_idx]
    train, val = encode_chapters(tokenizer, kept), encode_chapters(tokenizer, held_out)
    np.save(arguments.out / "train.npy", train)
    np.save(arguments.out / "val.npy", val)
    write_text(arguments.out / "held_out.txt", tokenizer.decode(val.tolist()))
    bytes_per_token = sum(len(chapter.encode()) for chapter in held_out) / len(val)
    print(
        f"train {len(train)} tokens, val {len(val)} tokens, {bytes_per_token:.4f} bytes per token"
    )


if __name__ == "__main__":
    main()

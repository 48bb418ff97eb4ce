"""Checks the repository against the house style and prints file:line: rule: message.

Usage: tidy.py ROOT [--rule NAME]... Exit status 0 when clean, 1 with violations, 2 on wrong use.
"""

import argparse
import collections
import functools
import os
import pathlib
import subprocess
import sys

import cpp_text
import include_rules
import shape_rules
import text_rules

RULES = {**include_rules.RULES, **shape_rules.RULES, **text_rules.RULES}

_CPP = ('.h', '.cc', '.cu', '.cuh')
_CODE = _CPP + ('.py', '.sh', '.cmake', '.proto', 'CMakeLists.txt')
_TEXT = _CODE + ('.md', '.yaml', '.yml', '.clang-format', '.clang-tidy', '.gitignore',
                 'CMakePresets.json')
_SKIPPED_FOLDERS = frozenset(['build', '.git', '.cache', '__pycache__'])


class Tree:
    """The files under test: {path relative to the root: text}, with their parsed forms."""

    def __init__(self, files):
        self.files = files
        self.blanked = functools.cache(lambda path: cpp_text.blank(files[path]))
        self.includes = functools.cache(
            lambda path: cpp_text.includes(files[path], self.blanked(path)))
        self.functions = functools.cache(lambda path: cpp_text.functions_of(self.blanked(path)))

    def lines(self, path):
        text = self.files[path]
        return text[:-1].split('\n') if text.endswith('\n') else text.split('\n')

    def cpp_files(self):
        return self._ending_in(_CPP)

    def code_files(self):
        return self._ending_in(_CODE)

    def text_files(self):
        return self._ending_in(_TEXT)

    def _ending_in(self, suffixes):
        return sorted(path for path in self.files if path.endswith(suffixes))


def tracked_paths(root):
    """What git knows or would add, None where git cannot say."""
    if not os.path.exists(os.path.join(root, '.git')):
        return None
    command = ['git', '-C', root, 'ls-files', '-z', '--cached', '--others', '--exclude-standard']
    try:
        listing = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return sorted(set(filter(None, listing.decode().split('\0'))))


def walked_paths(root):
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def read_tree(root):
    paths = tracked_paths(root)
    if paths is None:
        paths = walked_paths(root)
    files = {}
    for path in paths:
        full = pathlib.Path(root, path)
        if full.is_symlink() or not full.is_file():  # deleted but not committed, or another tree
            continue
        # Only text is judged by its content; the rest (weights, golden data) by its name.
        files[path] = full.read_text('utf-8', 'replace') if path.endswith(_TEXT) else ''
    return Tree(files)


def violations(tree, rules):
    found = [(path, line, name, message)
             for name in rules for path, line, message in RULES[name](tree)]
    return sorted(found)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('root')
    parser.add_argument('--rule', action='append', choices=sorted(RULES), default=[])
    options = parser.parse_args(arguments)
    tree = read_tree(options.root)
    if not tree.cpp_files():
        print(f'tidy: no C++ file under {options.root}; give the root of the repository',
              file=sys.stderr)
        return 2
    rules = options.rule or sorted(RULES)
    found = violations(tree, rules)
    for path, line, rule, message in found:
        print(f'{path}:{line}: {rule}: {message}')
    counts = collections.Counter(rule for _, _, rule, _ in found)
    summary = ', '.join(f'{rule} {count}' for rule, count in sorted(counts.items()))
    print(f'tidy: {len(tree.files)} files, {len(rules)} rules, {len(found)} violations'
          + (f' ({summary})' if summary else ''))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))

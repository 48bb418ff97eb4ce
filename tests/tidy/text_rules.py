"""Names, words, white space, the root folder and test names."""

import posixpath
import re

ROOT_ENTRIES = frozenset([
    'include', 'src', 'kernels', 'proto', 'tests', 'bench', 'configs', 'docs', 'cmake',
    'CMakeLists.txt', 'CMakePresets.json', 'README.md', 'LICENSE'])
# Words of file and folder names, and what to do instead.
BANNED_NAMES = {
    'utils': 'name it after the idea it owns', 'util': 'name it after the idea it owns',
    'helper': 'name it after what it does', 'helpers': 'name it after what it does',
    'misc': 'name it after the idea it owns',
    'common': 'give the code to the module that owns the idea',
    'v2': 'replace the first version instead of keeping two'}
# Parts of identifiers, as snake_case, and the glossary's word.
BANNED_IDENTIFIERS = {
    'cache_entry': 'record', 'kv_entry': 'record', 'row_entry': 'record',
    'kv_page': 'host block or chunk', 'kv_block': 'host block', 'seq_len': 'num_tokens',
    'seqlen': 'num_tokens', 'drafter': 'draft', 'draft_model': 'draft',
    'swap_in': 'resume', 'swap_out': 'park'}
BANNED_NOTES = {'TO' 'DO': 'finish it or leave it out', 'FIX' 'ME': 'fix it with a test'}
# Where CUDA's own words are defined for a compiler that does not know them.
CUDA_WORDS_HOME = 'tests/simt/emu/'
# Where GoogleTest's words are defined for machines without it.
GTEST_WORDS_HOME = 'tests/gpu/carried/gtest/'
# Macros that a library's header reads.
LIBRARY_MACROS = frozenset(['PCRE2_CODE_UNIT_WIDTH', '_GNU_SOURCE'])
GETENV_HOMES = re.compile(r'src/config/|src/device/cpu_isa\.cc$')
# Spelled in pieces so that this file passes its own rule.
_MACHINE_PATH = re.compile(r'(?<![\w.})~-])/(' + '|'.join(['work', 'home', 'root', 'tmp']) + ')/')
_TEST = re.compile(r'^[ \t]*(?:TYPED_)?TEST(?:_F|_P)?\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)', re.MULTILINE)
_SENTENCE = re.compile(r'[a-z0-9]+(?:_[a-z0-9]+){2,}')
_WORD = re.compile(r'[A-Za-z_]\w*')


def snake(identifier):
    return re.sub(r'(?<=[a-z0-9])(?=[A-Z])', '_', identifier).lower()


def check_root(tree):
    for entry in sorted({path.split('/')[0] for path in tree.files}):
        if entry not in ROOT_ENTRIES and not entry.startswith('.'):
            yield (entry, 1, f'"{entry}" does not belong into the root folder; move it into one of '
                             f'its folders')


def check_file_names(tree):
    for path in sorted(tree.files):
        for word in re.split(r'[/_.\-]', path.lower()):
            if word in BANNED_NAMES:
                yield path, 1, f'"{word}" in a path says nothing; {BANNED_NAMES[word]}'


def check_words(tree):
    for path in tree.cpp_files():
        for number, line in enumerate(tree.blanked(path).split('\n'), start=1):
            for identifier in set(_WORD.findall(line)):
                padded = f'_{snake(identifier)}_'
                for banned, word in BANNED_IDENTIFIERS.items():
                    if f'_{banned}_' in padded:
                        yield (path, number, f'"{identifier}": the glossary\'s word for '
                                             f'"{banned}" is {word}')
    for path in tree.code_files():
        for number, line in enumerate(tree.lines(path), start=1):
            for note, remedy in BANNED_NOTES.items():
                if re.search(rf'\b{note}\b', line):
                    yield path, number, f'"{note}" rots where it stands; {remedy}'


def check_macros(tree):
    for path in tree.cpp_files():
        for number, line in enumerate(tree.blanked(path).split('\n'), start=1):
            match = re.match(r'\s*#\s*define\s+(\w+)', line)
            if match and path.startswith(CUDA_WORDS_HOME) and (
                    re.match(r'__\w+__$|[a-z]', match.group(1))):
                continue
            if path.startswith(GTEST_WORDS_HOME):
                continue
            if match and not match.group(1).startswith('DHS_') and (
                    match.group(1) not in LIBRARY_MACROS):
                yield (path, number, f'macro {match.group(1)}: ours are called DHS_*; better, make '
                                     f'it a constant or a function')


def check_using_std(tree):
    for path in tree.cpp_files():
        for number, line in enumerate(tree.blanked(path).split('\n'), start=1):
            if re.search(r'\busing\s+namespace\s+std\b', line):
                yield path, number, 'using namespace std; write std:: before each name'


def check_getenv(tree):
    for path in tree.cpp_files():
        if GETENV_HOMES.match(path):
            continue
        for number, line in enumerate(tree.blanked(path).split('\n'), start=1):
            if re.search(r'\b(secure_)?getenv\b', line):
                yield (path, number, 'the environment is read in config only; take the value as a '
                                     'field of the module\'s options')


def check_white_space(tree):
    for path in tree.text_files():
        text = tree.files[path]
        for number, line in enumerate(tree.lines(path), start=1):
            if '\t' in line:
                yield path, number, 'a tab; indent with spaces, write \\t in literals'
            if line != line.rstrip():
                yield path, number, 'blanks at the end of the line; remove them'
        if text and not text.endswith('\n'):
            yield path, len(tree.lines(path)), 'no newline at the end of the file; add one'
        if text.endswith('\n\n'):
            yield path, len(tree.lines(path)), 'empty lines at the end of the file; remove them'


def check_machine_paths(tree):
    for path in tree.text_files():
        for number, line in enumerate(tree.lines(path), start=1):
            for match in _MACHINE_PATH.finditer(line):
                if match.group(1) == 'tmp' and path.startswith('tests/'):
                    continue
                yield (path, number, f'"{match.group()}" is a path of one machine; build it from '
                                     f'the root folder, an option, or mktemp')


def check_test_names(tree):
    for path in tree.cpp_files():
        for match in _TEST.finditer(tree.blanked(path)):
            if not _SENTENCE.fullmatch(match.group(2)):
                line = tree.blanked(path).count('\n', 0, match.start(2)) + 1
                yield (path, line, f'test "{match.group(2)}" is no sentence; write three or more '
                                   f'lower_case words that state what holds')


def check_test_places(tree):
    for path in tree.cpp_files():
        name = posixpath.basename(path)
        if name.endswith('_test.cc') and not path.startswith('tests/'):
            yield path, 1, 'a test outside tests/; move it to tests/<module>/'


RULES = {'root': check_root, 'file-name': check_file_names, 'word': check_words,
         'macro': check_macros, 'using-std': check_using_std, 'getenv': check_getenv,
         'white-space': check_white_space, 'machine-path': check_machine_paths,
         'test-name': check_test_names, 'test-place': check_test_places}

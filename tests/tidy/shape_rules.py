"""How long and how deep: files, lines, functions, parameters, nesting."""

import re

MAX_NUM_COLUMNS = 100
MAX_NUM_FILE_LINES = 500
MAX_NUM_HEADER_LINES = 200
MAX_NUM_FUNCTION_LINES = 70
MAX_NUM_KERNEL_LINES = 250
MAX_NUM_PARAMETERS = 5
MAX_DEPTH = 3
# Stand-ins for a library's functions have the library's parameters; the one called launch stands
# for <<<grid, block, shared bytes, stream>>>(...).
_FOREIGN = re.compile(r'(cuda|nccl|cublasLt)[A-Z]|launch$')


def check_lines(tree):
    for path in tree.code_files():
        for number, line in enumerate(tree.lines(path), start=1):
            if len(line) > MAX_NUM_COLUMNS:
                yield (path, number, f'{len(line)} columns, the limit is {MAX_NUM_COLUMNS}; break '
                                     f'the line')


def check_files(tree):
    for path in tree.code_files():
        is_public = path.startswith('include/')
        limit = MAX_NUM_HEADER_LINES if is_public else MAX_NUM_FILE_LINES
        num_lines = len(tree.lines(path))
        if num_lines > limit:
            kind = 'public header' if is_public else 'file'
            yield (path, limit + 1, f'{num_lines} lines, the limit of a {kind} is {limit}; split '
                                    f'it by the ideas it holds')


def check_functions(tree):
    for path in tree.cpp_files():
        limit = MAX_NUM_KERNEL_LINES if path.startswith('kernels/') else MAX_NUM_FUNCTION_LINES
        for function in tree.functions(path)[0]:
            if function.is_definition and function.num_lines > limit:
                yield (path, function.first_line,
                       f'{function.name} has {function.num_lines} lines, the limit is {limit}; '
                       f'name its stages and make each a function')


def check_parameters(tree):
    for path in tree.cpp_files():
        is_header = path.endswith(('.h', '.cuh'))
        for function in tree.functions(path)[0]:
            checked = (is_header or function.is_definition) and not _FOREIGN.match(function.name)
            if checked and function.num_parameters > MAX_NUM_PARAMETERS:
                yield (path, function.first_line,
                       f'{function.name} takes {function.num_parameters} parameters, the limit is '
                       f'{MAX_NUM_PARAMETERS}; pass an options struct with designated initialisers')


def check_nesting(tree):
    for path in tree.cpp_files():
        functions, balanced = tree.functions(path)
        if not balanced:
            yield (path, 1, 'braces do not balance, so functions cannot be measured; open and '
                            'close each brace inside the same preprocessor branch')
        for function in functions:
            if function.max_depth > MAX_DEPTH:
                yield (path, function.deepest_line,
                       f'{function.name} nests {function.max_depth} deep, the limit is '
                       f'{MAX_DEPTH}; return early or make the inner block a function')


RULES = {'line-length': check_lines, 'file-length': check_files,
         'function-length': check_functions, 'parameters': check_parameters,
         'nesting': check_nesting}

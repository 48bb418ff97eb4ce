"""Reads C++ well enough to measure it: comments and literals out, then functions by their braces.

This is not a C++ parser. Where a construct is ambiguous the answer is the one that raises no
complaint, since a rule that cries wolf is soon switched off.
"""

import re
from dataclasses import dataclass, field

_LITERALS_AND_COMMENTS = re.compile(
    r'''(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
      | (?P<raw>(?:u8|[uUL])?R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)")
      | (?P<number>(?<![\w])\.?\d(?:'?[\w.])*)
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<char>'(?:\\.|[^'\\\n])*')''', re.DOTALL | re.VERBOSE)
_TOKEN = re.compile(r'\w+|::|->|<=>|<<|&&|\S')
_CONTROL = frozenset(['if', 'for', 'while', 'switch', 'do', 'else', 'try', 'catch'])
_CLASS_KEYS = frozenset(['class', 'struct', 'union', 'enum'])
_BODY_MAY_FOLLOW = frozenset([')', '{}', 'const', 'noexcept', 'override', 'final', '&', '&&', 'try',
                              'mutable'])
_PARENTHESISED = frozenset(['alignas', 'decltype', 'noexcept', 'requires', 'explicit',
                            '__attribute__'])
_OPENERS = {'(': ')', '[': ']', '{': '}'}


@dataclass
class Token:
    text: str
    line: int


@dataclass
class Function:
    """One definition or declaration; lines are 1-based and inclusive."""
    name: str
    first_line: int
    last_line: int
    num_parameters: int
    is_definition: bool
    max_depth: int = 0
    deepest_line: int = 0

    @property
    def num_lines(self):
        return self.last_line - self.first_line + 1


@dataclass
class _Scope:
    kind: str  # namespace, class, function, control, block or expression
    head: list = field(default_factory=list)
    num_parens: int = 0
    depth: int = 0
    function: Function = None


def blank(text):
    """`text` with comments and the insides of literals turned into spaces; lines stay in place."""
    def replace(match):
        found = match.group()
        if match.lastgroup == 'number':
            return found.replace("'", '0')
        spaces = re.sub(r'[^\n]', ' ', found)
        if match.group('comment') is not None:
            return spaces
        return '"' + spaces[1:-1] + '"'  # what kind of literal it was matters to no rule
    return _LITERALS_AND_COMMENTS.sub(replace, text)


def includes(text, blanked):
    """[(line, path, is_quoted)] of every #include that is not inside a comment."""
    found = []
    for number, (raw, code) in enumerate(zip(text.split('\n'), blanked.split('\n')), start=1):
        if not re.match(r'\s*#\s*include\b', code):
            continue
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', raw)
        if match:
            found.append((number, match.group(2), match.group(1) == '"'))
    return found


def without_directives(blanked):
    """Drops preprocessor lines, and alternatives (#else) that would open or close a brace twice."""
    lines = blanked.split('\n')
    kept = []
    skipping = 0  # how many #if levels deep inside a dropped alternative
    in_directive = False
    for index, line in enumerate(lines):
        starts = not in_directive and re.match(r'\s*#\s*(\w+)', line)
        is_directive = in_directive or bool(starts)
        in_directive = is_directive and line.rstrip().endswith('\\')
        if starts:
            skipping = _skip_level(skipping, starts.group(1), lines, index)
        kept.append('' if is_directive or skipping else line)
    return '\n'.join(kept)


def _skip_level(skipping, directive, lines, index):
    if skipping:
        if directive in ('if', 'ifdef', 'ifndef'):
            return skipping + 1
        if directive == 'endif' or (skipping == 1 and directive in ('else', 'elif')):
            skipping -= 1
        if skipping or directive == 'endif':
            return skipping
    if directive in ('else', 'elif') and _branch_brace_sum(lines, index + 1) != 0:
        return 1
    return 0


def _branch_brace_sum(lines, start):
    total = 0
    level = 0
    for line in lines[start:]:
        match = re.match(r'\s*#\s*(\w+)', line)
        directive = match.group(1) if match else ''
        if level == 0 and directive in ('else', 'elif', 'endif'):
            break
        if directive in ('if', 'ifdef', 'ifndef'):
            level += 1
        elif directive == 'endif':
            level -= 1
        elif not directive:
            total += line.count('{') - line.count('}')
    return total


def tokens_of(code):
    return [Token(match.group(), number)
            for number, line in enumerate(code.split('\n'), start=1)
            for match in _TOKEN.finditer(line)]


def functions_of(blanked):
    """(functions, balanced): every function, and whether all braces found their partner."""
    reader = _Reader()
    for token in tokens_of(without_directives(blanked)):
        reader.read(token)
    return reader.functions, reader.balanced and len(reader.stack) == 1


class _Reader:
    def __init__(self):
        self.functions = []
        self.balanced = True
        self.stack = [_Scope('namespace')]
        self.head = []  # tokens since the last statement ended
        self.num_parens = 0

    def read(self, token):
        if token.text == '{':
            self._open(token)
        elif token.text == '}':
            self._close(token)
        elif token.text == ';' and self.num_parens == 0:
            self._declare(token)
            self.head = []
        elif token.text == ':' and self._head_is_a_label():
            self.head = []
        else:
            self.num_parens += {'(': 1, ')': -1}.get(token.text, 0)
            self.head.append(token)

    def _head_is_a_label(self):
        if self.num_parens or not self.head:
            return False
        first = self.head[0].text
        return first in ('case', 'default', 'public', 'private', 'protected')

    def _open(self, token):
        parent = self.stack[-1]
        scope = _Scope('', self.head, self.num_parens, parent.depth, parent.function)
        if parent.kind in ('namespace', 'class'):
            self._open_declaration(scope)
        else:
            self._open_statement(scope, token)
        self.stack.append(scope)
        self.head = []
        self.num_parens = 0

    def _open_declaration(self, scope):
        head = _strip_prefix(self.head)
        scope.kind = _declaration_kind(head, self.num_parens)
        if scope.kind != 'function':
            return
        parameters = _find_parameters(head)
        scope.depth = 0
        scope.function = Function(_name_before(head, parameters[0]), head[0].line, 0,
                                  _count_parameters(head, *parameters), True)

    def _open_statement(self, scope, token):
        texts = [t.text for t in self.head]
        if self.num_parens == 0 and texts and texts[0] in _CONTROL:
            scope.kind = 'control'
            scope.depth += _num_controls(texts)
            if scope.function and scope.depth > scope.function.max_depth:
                scope.function.max_depth = scope.depth
                scope.function.deepest_line = token.line
        elif self.num_parens == 0 and texts and texts[0] in _CLASS_KEYS:
            scope.kind = 'class'
        else:
            scope.kind = 'expression' if texts else 'block'

    def _close(self, token):
        if len(self.stack) == 1:
            self.balanced = False
            return
        scope = self.stack.pop()
        self.num_parens = scope.num_parens
        self.head = []
        if scope.kind == 'expression':
            self.head = scope.head + [Token('{}', token.line)]
        elif scope.kind == 'function':
            scope.function.last_line = token.line
            self.functions.append(scope.function)

    def _declare(self, token):
        if self.stack[-1].kind not in ('namespace', 'class'):
            return
        head = _strip_prefix(self.head)
        if not head or head[0].text in ('using', 'typedef', 'static_assert', 'extern', 'return'):
            return
        parameters = _find_parameters(head)
        if parameters is None:
            return
        self.functions.append(
            Function(_name_before(head, parameters[0]), head[0].line, token.line,
                     _count_parameters(head, *parameters), False))


def _num_controls(texts):
    count = 0
    parens = 0
    for index, text in enumerate(texts):
        parens += {'(': 1, ')': -1}.get(text, 0)
        if parens == 0 and text in _CONTROL:
            count += not (text == 'if' and index > 0 and texts[index - 1] == 'else')
    return count


def _declaration_kind(head, num_parens):
    texts = [t.text for t in head]
    if 'namespace' in texts or (texts[:1] == ['extern'] and len(texts) <= 3):
        return 'namespace'
    parameters = _find_parameters(head) if num_parens == 0 else None
    if num_parens == 0 and texts and texts[0] in _CLASS_KEYS and parameters is None:
        return 'class'
    if parameters is None:
        return 'expression'
    after = texts[parameters[1] + 1:]
    if ':' in after:  # constructor: `b_{b}` initialises a member, `) {` and `} {` open the body
        return 'function' if texts[-1] in (')', '{}') else 'expression'
    if '->' in after or 'requires' in after or texts[-1] in _BODY_MAY_FOLLOW:
        return 'function'
    return 'expression'


def _strip_prefix(head):
    """`head` without leading template<...>, [[attributes]], alignas(...) and lone DHS_ macros."""
    start = 0
    while start < len(head):
        text = head[start].text
        following = head[start + 1].text if start + 1 < len(head) else ''
        if text == 'template' and following == '<':
            start = _skip_angles(head, start + 1)
        elif text == '[' and following == '[':
            start = _skip_group(head, start)
        elif text in ('alignas', '__attribute__', 'requires') and following == '(':
            start = _skip_group(head, start + 1)
        elif text.startswith('DHS_') and following == '(' and _starts_name(
                head, _skip_group(head, start + 1)):
            start = _skip_group(head, start + 1)
        else:
            break
    return head[start:]


def _starts_name(head, index):
    return index < len(head) and re.match(r'\w', head[index].text) and (
        head[index].text not in _BODY_MAY_FOLLOW)


def _skip_group(head, start):
    """The index behind the bracket that closes the one at `start`."""
    closing = _OPENERS[head[start].text]
    level = 0
    for index in range(start, len(head)):
        level += {head[start].text: 1, closing: -1}.get(head[index].text, 0)
        if level == 0:
            return index + 1
    return len(head)


def _skip_angles(head, start):
    level = 0
    index = start
    while index < len(head):
        text = head[index].text
        if text == '(':
            index = _skip_group(head, index)
            continue
        level += {'<': 1, '>': -1}.get(text, 0)
        index += 1
        if level == 0:
            return index
    return len(head)


def _find_parameters(head):
    """(index of '(', index of ')') of the parameter list, None when `head` is no function."""
    index = 0
    while index < len(head):
        text = head[index].text
        if text == 'operator':
            return _operator_parameters(head, index + 1)
        if text == '=':
            return None
        if text == '<':
            index = _skip_angles(head, index)
        elif text in ('[', '{'):
            index = _skip_group(head, index)
        elif text == '(' and index > 0 and head[index - 1].text in _PARENTHESISED:
            index = _skip_group(head, index)
        elif text == '(':
            return _group_of(head, index)
        else:
            index += 1
    return None


def _operator_parameters(head, index):
    if [t.text for t in head[index:index + 2]] == ['(', ')']:
        index += 2
    while index < len(head) and head[index].text != '(':
        index += 1
    return _group_of(head, index) if index < len(head) else None


def _group_of(head, index):
    named = index > 0 and re.match(r'[A-Za-z_~]|\W', head[index - 1].text)
    is_pointer = index + 1 < len(head) and head[index + 1].text in ('*', '&')
    end = _skip_group(head, index) - 1
    return None if not named or is_pointer or head[end].text != ')' else (index, end)


def _name_before(head, index):
    name = head[index - 1].text
    if name == ')':
        return 'operator()'
    return name if re.match(r'\w', name) else 'operator' + name


def _count_parameters(head, start, end):
    inside = head[start + 1:end]
    if not inside or [t.text for t in inside] == ['void']:
        return 0
    count = 1
    index = 0
    while index < len(inside):
        text = inside[index].text
        if text == '<':
            index = _skip_angles(inside, index)
        elif text in _OPENERS:
            index = _skip_group(inside, index)
        else:
            count += text == ','
            index += 1
    return count

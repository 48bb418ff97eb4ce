"""Each rule of tidy.py must find a violation planted for it, and must leave good code alone."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import cpp_text
import tidy

# Spelled in pieces so that this file passes the rules it tests.
WORK_PATH = '/' + 'work/main'
TMP_PATH = '/' + 'tmp/scratch'
NOTE = 'TO' + 'DO'


def found(rule, files):
    """['file:line'] of what one rule says about a small tree."""
    return [f'{path}:{line}' for path, line, _, _ in tidy.violations(tidy.Tree(files), [rule])]


def message(rule, files):
    return tidy.violations(tidy.Tree(files), [rule])[0][3]


def functions(code):
    return cpp_text.functions_of(cpp_text.blank(code))


def body(num_lines):
    return 'int f() {\n' + '  g();\n' * (num_lines - 2) + '}\n'


class IncludeRules(unittest.TestCase):
    GOOD = {
        'include/dhisparse/base.h': '', 'include/dhisparse/kv.h': '#include "dhisparse/base.h"\n',
        'include/dhisparse/tensor.h': '', 'include/dhisparse/stream.h': '',
        'include/dhisparse/device.h': '#include <absl/status/status.h>\n',
        'src/kv/pages.h': '#include "dhisparse/kv.h"\n',
        'src/kv/pages.cc': '#include "kv/pages.h"\n#include "pages.h"\n',
        'kernels/norm/norm.h': '#include "dhisparse/tensor.h"\n#include "dhisparse/stream.h"\n',
        'kernels/norm/norm_tables.h': '#include "dhisparse/device.h"\n',
        'src/model/model.cc': '#include "dhisparse/kv.h"\n#include "kernels/norm/norm.h"\n',
        'tests/kv/pages_test.cc': '#include "kv/pages.h"\n#include "src/kv/pages.h"\n',
    }

    def with_file(self, path, text):
        return {**self.GOOD, path: text}

    def test_a_good_tree_has_no_include_violation(self):
        for rule in tidy.include_rules.RULES:
            self.assertEqual(found(rule, self.GOOD), [])

    def test_a_public_header_of_a_later_module_is_found(self):
        files = self.with_file('src/base/log.cc', '\n#include "dhisparse/kv.h"\n')
        self.assertEqual(found('include-order', files), ['src/base/log.cc:2'])

    def test_a_header_named_unlike_its_module_counts_for_its_module(self):
        files = self.with_file('src/config/load.cc', '#include <dhisparse/stream.h>\n')
        self.assertIn('device', message('include-order', files))

    def test_a_kernel_may_not_include_a_later_module(self):
        files = self.with_file('kernels/norm/norm_ref.cc', '#include "dhisparse/kv.h"\n')
        self.assertEqual(found('include-order', files), ['kernels/norm/norm_ref.cc:1'])

    def test_private_headers_of_others_are_found_in_every_spelling(self):
        for written in ('kv/pages.h', 'src/kv/pages.h', '../kv/pages.h'):
            files = self.with_file('src/model/weights.cc', f'#include "{written}"\n')
            self.assertIn('private to kv', message('include-order', files))

    def test_private_kernel_headers_are_found_outside_kernels(self):
        files = self.with_file('bench/kernels/b.cc', '#include "kernels/norm/norm_tables.h"\n')
        self.assertIn('private to kernels', message('include-order', files))

    def test_a_module_may_not_include_tests(self):
        files = self.with_file('src/kv/more.cc', '#include "tests/kv/fixtures.h"\n')
        files['tests/kv/fixtures.h'] = ''
        self.assertEqual(found('include-order', files), ['src/kv/more.cc:1'])

    def test_a_folder_that_is_no_module_is_found(self):
        self.assertEqual(found('include-order', self.with_file('src/extra/a.cc', '')),
                         ['src/extra/a.cc:1'])

    def test_an_include_inside_a_comment_is_no_include(self):
        files = self.with_file('src/base/log.cc', '/*\n#include "dhisparse/kv.h"\n*/\n')
        self.assertEqual(found('include-order', files), [])

    def test_a_kernel_header_that_includes_absl_is_found(self):
        files = self.with_file('kernels/norm/scratch.h', '#include <absl/types/span.h>\n')
        self.assertEqual(found('kernel-header', files), ['kernels/norm/scratch.h:1'])

    def test_a_kernel_header_that_includes_base_is_found(self):
        files = self.with_file('kernels/norm/scratch.h', '#include "dhisparse/base.h"\n')
        self.assertEqual(found('kernel-header', files), ['kernels/norm/scratch.h:1'])

    def test_the_header_of_an_op_is_followed_into_what_it_includes(self):
        files = self.with_file('kernels/rope/rope.h', '#include "dhisparse/device.h"\n')
        self.assertEqual(found('kernel-header', files), ['kernels/rope/rope.h:1'])

    def test_a_heavy_header_in_a_header_is_found(self):
        files = {'src/base/log.h': '#include <spdlog/spdlog.h>\n'}
        self.assertEqual(found('heavy-header', files), ['src/base/log.h:1'])

    def test_a_second_user_of_a_heavy_header_is_found_per_module_and_program(self):
        cli = '#include <CLI/CLI.hpp>\n'
        files = {'src/app/client_a.cc': cli, 'src/app/daemon_a.cc': cli,
                 'src/config/a.cc': '#include <yaml-cpp/yaml.h>\n#include <yaml-cpp/mark.h>\n',
                 'tests/config/a_test.cc': '#include <yaml-cpp/yaml.h>\n'}
        self.assertEqual(found('heavy-header', files), [])
        files['src/app/dhisparse.cc'] = cli
        files['src/config/b.cc'] = '\n#include <yaml-cpp/yaml.h>\n'
        self.assertEqual(found('heavy-header', files),
                         ['src/app/dhisparse.cc:1', 'src/config/b.cc:2'])

    def test_grpc_outside_the_server_is_found(self):
        grpc = '#include <grpcpp/grpcpp.h>\n'
        contract = '#include "dhisparse/v1/generation.pb.h"\n'
        self.assertEqual(found('foreign-header', {
            'src/server/a.cc': grpc + contract, 'tests/server/a.cc': grpc,
            'src/app/client_a.cc': grpc, 'src/app/daemon_a.cc': grpc,
            'src/engine/a.cc': contract}), ['src/app/daemon_a.cc:1', 'src/engine/a.cc:1'])

    def test_cuda_outside_device_and_kernels_is_found(self):
        cuda = '#include <cuda_runtime.h>\n'
        self.assertEqual(found('foreign-header', {
            'src/device/a.cc': cuda, 'kernels/norm/norm.cu': cuda, 'src/store/a.cc': cuda,
            'src/model/a.cc': '#include <nccl.h>\n'}), ['src/model/a.cc:1', 'src/store/a.cc:1'])


class ShapeRules(unittest.TestCase):
    def test_lines_are_measured_in_characters(self):
        good = '// ' + 'é' * 97 + '\n'
        self.assertEqual(found('line-length', {'src/kv/a.cc': good}), [])
        for path in ('src/kv/a.cc', 'cmake/a.sh', 'src/kv/CMakeLists.txt', 'tests/a.py'):
            self.assertEqual(found('line-length', {path: '\n#' + 'x' * 100 + '\n'}), [f'{path}:2'])

    def test_long_lines_of_documents_and_data_are_left_alone(self):
        self.assertEqual(found('line-length', {'docs/A.md': 'x' * 200, 'tests/a.json': 'x' * 200}),
                         [])

    def test_long_files_and_long_public_headers_are_found(self):
        self.assertEqual(found('file-length', {
            'src/kv/a.cc': '\n' * 500, 'include/dhisparse/kv.h': '\n' * 200}), [])
        self.assertEqual(found('file-length', {
            'src/kv/a.cc': '\n' * 501, 'include/dhisparse/kv.h': '\n' * 201}),
            ['include/dhisparse/kv.h:201', 'src/kv/a.cc:501'])

    def test_long_functions_are_found_and_kernels_may_be_longer(self):
        self.assertEqual(found('function-length', {
            'src/kv/a.cc': body(70), 'kernels/norm/norm.cu': body(250)}), [])
        self.assertEqual(found('function-length', {
            'src/kv/a.cc': '\n' + body(71), 'kernels/norm/norm.cu': body(251)}),
            ['kernels/norm/norm.cu:1', 'src/kv/a.cc:2'])

    def test_long_methods_and_constructors_are_found(self):
        lines = '  g();\n' * 70
        for head in ('struct S {\nS(int a) : a_{a}, b_(a) {\n', 'class S : B<int> {\nvoid f() {\n',
                     'namespace x {\nbool operator()(int a) const {\n',
                     'namespace x {\ntemplate <class T>\nauto f(T t) -> std::vector<T> {\n',
                     'namespace x {\nTEST(Suite, states_what_holds) {\n'):
            code = head + lines + '}\n};\n'
            self.assertEqual(len(found('function-length', {'src/kv/a.cc': code})), 1, head)

    def test_parameters_are_counted_in_definitions_and_header_declarations(self):
        six = 'int a, std::map<int, int> b, int (*c)(int, int), int d = f(1, 2), int e, int g'
        five = six.rsplit(',', 1)[0]
        self.assertEqual(found('parameters', {
            'src/kv/a.h': f'void f({five});\n', 'src/kv/a.cc': f'void f({five}) {{}}\n',
            'src/kv/b.cc': 'const Table kTable(1, 2, 3, 4, 5, 6);\n'}), [])
        self.assertEqual(found('parameters', {
            'src/kv/a.h': f'class A {{\n  A({six});\n}};\n',
            'src/kv/a.cc': f'\ntemplate <class T>\nvoid f({six}) {{}}\n'}),
            ['src/kv/a.cc:3', 'src/kv/a.h:2'])

    def test_nesting_is_counted_in_control_statements(self):
        three = 'for (;;) {\n while (a) {\n if (b) {\n g();\n'
        good = [f'void f() {{ {three} }} else if (c) {{ g(); }} else {{ h(); }} }} }} }}\n',
                f'void f() {{ {{ auto g = [&](int a) {{ {three} }} }} }} }}; }} }}\n',
                'void f() { switch (a) { case 1: { if (b) { for (;;) { g(S{1}); } } } } }\n',
                f'void f() {{ {three} h(S{{{{1}}, {{2}}}}); }} }} }} }}\n',
                'namespace a::b { struct C { struct D { void f() { if (a) { } } }; }; }']
        for code in good:
            self.assertEqual(found('nesting', {'src/kv/a.cc': code}), [], code)
        bad = [f'void f() {{ {three} if (c) {{ g(); }} }} }} }} }}\n',
               f'void f() {{ if (a) {{ p([&] {{ {three} }} }} }} }}); }} }}\n',
               f'void f() {{ {three} }} else {{ do {{ g(); }} while (a); }} }} }} }}\n']
        for code in bad:
            self.assertEqual(len(found('nesting', {'src/kv/a.cc': code})), 1, code)

    def test_braces_that_do_not_balance_are_reported(self):
        self.assertEqual(found('nesting', {'src/kv/a.cc': 'void f() {\n'}), ['src/kv/a.cc:1'])


class CppText(unittest.TestCase):
    def test_comments_and_literals_hide_their_braces(self):
        code = ('// {\n/* { \n*/ const char* a = "{\\"{";\nchar b = \'{\';\nauto c = R"x({)"{)x";\n'
                'int d = 1\'000; char e = \'}\';\nvoid f() {}\n')
        read, balanced = functions(code)
        self.assertTrue(balanced)
        self.assertEqual([(f.name, f.first_line) for f in read], [('f', 7)])

    def test_both_branches_of_a_condition_may_open_the_same_brace(self):
        code = ('#ifdef A\nvoid f() {\n#if B\n  g();\n#endif\n#else\nvoid f(int a) {\n#endif\n}\n'
                '#if A\nint h() { return 1; }\n#else\nint h() { return 2; }\n#endif\n')
        read, balanced = functions(code)
        self.assertTrue(balanced)
        self.assertEqual([f.name for f in read], ['f', 'h', 'h'])

    def test_what_is_no_function_is_not_taken_for_one(self):
        code = ('std::function<void(int)> a_{};\nconstexpr int kA[] = {f(1), 2};\n'
                'struct alignas(16) B { int c{3}; };\nenum class E : uint8_t { kA };\n'
                'const auto d = [](int a) { return a; };\nusing F = void (*)(int);\n'
                'extern "C" {\nint e;\n}\nint (*g)(int) = nullptr;\n')
        self.assertEqual(functions(code), ([], True))

    def test_a_table_macro_is_no_part_of_the_function_behind_it(self):
        read, _ = functions('DHS_TABLE(a, b)\nDHS_TABLE(c, )\n\nvoid f(int a) {}\n')
        self.assertEqual([(f.name, f.first_line) for f in read], [('f', 4)])

    def test_macro_bodies_are_not_read(self):
        read, balanced = functions('#define DHS_A(x) \\\n  void f() { \\\n    x\nint g() { }\n')
        self.assertEqual(([f.name for f in read], balanced), (['g'], True))


class TextRules(unittest.TestCase):
    def test_a_stray_entry_of_the_root_is_found(self):
        files = {'README.md': '', 'src/kv/a.cc': '', '.clang-format': '', 'notes.md': '',
                 'prototype/a.cc': ''}
        self.assertEqual(found('root', files), ['notes.md:1', 'prototype:1'])

    def test_empty_words_in_paths_are_found(self):
        for path in ('src/kv/kv_utils.cc', 'src/common/a.cc', 'src/kv/helper.h', 'proto/v2/a'):
            self.assertEqual(found('file-name', {path: ''}), [f'{path}:1'])
        self.assertEqual(found('file-name', {'src/kv/commonality.cc': '', 'proto/v1/a.proto': ''}),
                         [])

    def test_synonyms_of_glossary_words_are_found_with_the_replacement(self):
        for code, word in (('struct CacheEntry {};', 'record'), ('int max_seq_len;', 'num_tokens'),
                           ('Drafter* d;', 'draft'), ('int kv_block_idx;', 'host block')):
            self.assertIn(word, message('word', {'src/kv/a.cc': code}))
        self.assertEqual(found('word', {'src/kv/a.cc': 'f("seq_len");  // a cache_entry\n'}), [])

    def test_notes_to_oneself_are_found(self):
        self.assertEqual(found('word', {'src/kv/a.cc': f'\n// {NOTE}: later\n'}), ['src/kv/a.cc:2'])

    def test_foreign_macros_are_found(self):
        self.assertEqual(found('macro', {'src/kv/a.h': '#define DHS_A 1\n  #  define MAX(a) a\n'}),
                         ['src/kv/a.h:2'])
        self.assertEqual(found('macro', {'src/kv/a.h': '// #define MAX\n'}), [])

    def test_using_namespace_std_is_found(self):
        self.assertEqual(found('using-std', {'src/kv/a.cc': 'void f() {\nusing namespace std;\n}'}),
                         ['src/kv/a.cc:2'])
        self.assertEqual(found('using-std', {'src/kv/a.cc': 'using namespace absl;\n'}), [])

    def test_getenv_outside_config_is_found(self):
        code = 'auto a = std::getenv("A");\n'
        self.assertEqual(found('getenv', {
            'src/config/a.cc': code, 'src/device/cpu_isa.cc': code, 'src/engine/a.cc': code,
            'src/kv/a.cc': '// getenv\n'}), ['src/engine/a.cc:1'])

    def test_white_space_faults_are_found(self):
        for text in ('\n\tx\n', '\nx \n', '\nx', 'x\n\n', '\nx\r\n'):
            self.assertEqual(found('white-space', {'src/kv/a.cc': text}), ['src/kv/a.cc:2'], text)
        self.assertEqual(found('white-space', {'src/kv/a.cc': 'x\n', 'src/kv/b.cc': '',
                                               'tests/golden/a.jsonl': 'x\t \n'}), [])

    def test_paths_of_a_machine_are_found(self):
        self.assertEqual(found('machine-path', {
            'docs/A.md': f'see {WORK_PATH}\n', 'cmake/a.sh': f'\ncd {TMP_PATH}\n',
            'tests/kv/a_test.cc': f'open("{TMP_PATH}");\nopen("{WORK_PATH}");\n',
            'src/kv/a.cc': '// a/work/b, ${root}/tmp/c\n'}),
            ['cmake/a.sh:2', 'docs/A.md:1', 'tests/kv/a_test.cc:2'])

    def test_test_names_that_are_no_sentence_are_found(self):
        for macro in ('TEST', 'TEST_F', 'TEST_P', 'TYPED_TEST'):
            for name in ('works', 'reads_it', 'ReadsTheFile', 'DISABLED_reads_the_file', 'a__b_c'):
                code = f'\n{macro}(Suite,\n     {name}) {{}}\n'
                self.assertEqual(found('test-name', {'tests/kv/a_test.cc': code}),
                                 ['tests/kv/a_test.cc:3'], name)
        good = 'TEST(Bpe, merges_lowest_rank_first) {}\n// TEST(Bpe, works)\n'
        self.assertEqual(found('test-name', {'tests/kv/a_test.cc': good}), [])

    def test_a_test_outside_tests_is_found(self):
        self.assertEqual(found('test-place', {'src/kv/a_test.cc': '', 'tests/kv/a_test.cc': ''}),
                         ['src/kv/a_test.cc:1'])


class Listing(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = scratch.name
        for path in ('src/kv/a.cc', 'src/kv/new.cc', 'build/b.cc', 'src/kv/a.bin'):
            full = pathlib.Path(self.root, path)
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_text('int a;\n' if path.endswith('.cc') else '\0')
        pathlib.Path(self.root, '.gitignore').write_text('/build/\n')
        os.symlink(self.root, os.path.join(self.root, 'link'))

    def test_without_git_the_folder_is_walked_past_build(self):
        self.assertEqual(sorted(tidy.read_tree(self.root).files),
                         ['.gitignore', 'src/kv/a.bin', 'src/kv/a.cc', 'src/kv/new.cc'])

    def test_with_git_tracked_and_new_files_are_read_and_deleted_ones_are_not(self):
        def git(*arguments):
            subprocess.run(['git', '-C', self.root, *arguments], check=True, capture_output=True)
        pathlib.Path(self.root, 'src/kv/gone.cc').write_text('int b;\n')
        git('init')
        git('add', 'src/kv/a.cc', 'src/kv/gone.cc')
        os.remove(os.path.join(self.root, 'src/kv/gone.cc'))
        self.assertEqual(sorted(tidy.read_tree(self.root).files),
                         ['.gitignore', 'src/kv/a.bin', 'src/kv/a.cc', 'src/kv/new.cc'])

    def run_tidy(self):
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'tidy.py')
        return subprocess.run(['python3', '-B', program, self.root], capture_output=True, text=True)

    def test_the_program_is_silent_about_a_good_tree_and_fails_on_a_bad_one(self):
        good = self.run_tidy()
        self.assertEqual((good.returncode, good.stdout.count('\n')), (0, 1), good.stdout)
        pathlib.Path(self.root, 'src/kv/a.cc').write_text('int a; \n')
        bad = self.run_tidy()
        self.assertEqual(bad.returncode, 1)
        self.assertTrue(bad.stdout.startswith('src/kv/a.cc:1: white-space: '), bad.stdout)

    def test_a_root_without_code_is_wrong_use(self):
        self.root = os.path.join(self.root, 'build')
        os.remove(os.path.join(self.root, 'b.cc'))
        self.assertEqual(self.run_tidy().returncode, 2)

    def test_every_rule_has_a_planted_violation(self):
        source = pathlib.Path(__file__).read_text()
        for rule in tidy.RULES:
            self.assertRegex(source, rf"(found|message)\('{rule}', ", rule)


if __name__ == '__main__':
    unittest.main()

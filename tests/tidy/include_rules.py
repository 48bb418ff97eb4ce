"""The include graph: who may include whom, and where a costly or foreign header may appear."""

import posixpath
import re

# A module includes only modules before it. `app` is last and `kernels` is the top-level folder.
MODULES = ['base', 'tensor', 'config', 'device', 'kernels', 'tokenizer', 'trace', 'kv', 'store',
           'model', 'sampling', 'scheduler', 'sim', 'engine', 'server', 'app']
# Public headers that are not named after their module.
PUBLIC_HEADER_OWNERS = {'sync': 'base', 'histogram': 'base', 'stream': 'device',
                        'communicator': 'device', 'upload': 'device', 'kv_geometry': 'kv',
                        'kv_usage': 'kv', 'sequence_memory': 'kv', 'request': 'scheduler',
                        'step': 'scheduler', 'step_cost': 'scheduler', 'figures': 'engine',
                        'capacity_plan': 'engine', 'client': 'server',
                        'config_reloader': 'server', 'monitor': 'server',
                        'query_rows': 'store', 'row_cache_arrays': 'kernels',
                        'trace_file': 'trace', 'draft': 'model', 'draft_counts': 'scheduler',
                        'draft_description': 'model', 'sim_config': 'config',
                        'counter_random': 'trace'}
HEAVY_PREFIXES = {'CLI/': 'CLI11', 'yaml-cpp/': 'yaml-cpp', 'nlohmann/': 'nlohmann-json',
                  'spdlog/': 'spdlog', 'prometheus/': 'prometheus-cpp', 'civetweb': 'civetweb'}
NO_KERNEL_HEADER = re.compile(r'absl/|grpc|google/protobuf/|spdlog/|dhisparse/base\.h$')
GRPC = re.compile(r'grpc(pp)?/|.*\.pb\.h$')
GRPC_HOMES = re.compile(r'src/server/|tests/server/|src/app/client')
CUDA = re.compile(r'cuda|cublas|cutlass/|cute/|cub/|nccl|nvtx|nvml|nvToolsExt|cooperative_groups|'
                  r'mma\.h$|device_launch_parameters')
CUDA_HOMES = re.compile(r'src/device/|kernels/|tests/(simt|gpu|device)/|bench/gpu/|'
                        r'tests/kernels/test_memory\.h$')


def module_of(path):
    """The module that owns a file; None for tests, benches and anything that may see all."""
    parts = path.split('/')
    if path.startswith('include/dhisparse/') and len(parts) == 3:
        stem = parts[2].rsplit('.', 1)[0]
        return PUBLIC_HEADER_OWNERS.get(stem, stem)
    if parts[0] == 'src' and len(parts) > 2:
        return parts[1]
    return 'kernels' if parts[0] == 'kernels' else None


def is_public(path):
    """Whether another module may include this header: include/ or kernels/<op>/<op>.h."""
    parts = path.split('/')
    if parts[0] == 'kernels':
        return len(parts) == 3 and parts[2] == parts[1] + '.h'
    return parts[0] == 'include'


def resolve(tree, includer, written, is_quoted):
    """The file of the tree that `#include written` in `includer` names, None for foreign ones."""
    folders = ['', 'src', 'include']
    if is_quoted:
        folders.insert(0, posixpath.dirname(includer))
    for folder in folders:
        path = posixpath.normpath(posixpath.join(folder, written))
        if path in tree.files:
            return path
    return None


def check_order(tree):
    for path in tree.cpp_files():
        owner = module_of(path)
        if owner is not None and owner not in MODULES:
            yield (path, 1, f'"{owner}" is no module; put the file into one of '
                            f'{", ".join(MODULES)}, or add the module to ARCHITECTURE.md and here')
            continue
        for line, written, is_quoted in tree.includes(path):
            target = resolve(tree, path, written, is_quoted)
            message = target and _edge_fault(path, owner, target)
            if message:
                yield path, line, message


def _edge_fault(path, owner, target):
    """What is wrong with `path` including `target`, None when nothing is."""
    target_owner = module_of(target)
    sees_all = ('tests/', 'bench/gpu/', 'bench/serving/', 'bench/simulate/')
    if path.startswith(sees_all) or owner == target_owner:
        return None
    if owner is not None and target_owner is None:
        return (f'{owner} includes {target}: a module must not depend on tests or benches; move '
                f'what both need into {owner}')
    if target_owner is None or target_owner not in MODULES:
        return None
    if owner is not None and MODULES.index(target_owner) > MODULES.index(owner):
        return (f'{owner} may not include {target_owner} ({target}), which comes after it in the '
                f'module table; hand the data down as a parameter or move the code up')
    if not is_public(target):
        return (f'{target} is private to {target_owner}; include its public header, or move the '
                f'declaration there')
    return None


def check_kernel_headers(tree):
    """Every kernel header directly, an op's own header also through what it includes."""
    for path in tree.cpp_files():
        if not path.startswith('kernels/') or not path.endswith(('.h', '.cuh')):
            continue
        for line, written, is_quoted in tree.includes(path):
            chain = [written] if NO_KERNEL_HEADER.match(written) else None
            if chain is None and is_public(path):
                chain = _chain_to_heavy(tree, resolve(tree, path, written, is_quoted), set())
            if chain:
                yield (path, line, f'a kernel header reaches {" -> ".join(chain)}, which '
                                   f'triples the time of each CUDA file; include '
                                   f'dhisparse/tensor.h or stream.h and pass plain data')


def _chain_to_heavy(tree, path, seen):
    if path is None or path in seen:
        return None
    seen.add(path)
    for _, written, is_quoted in tree.includes(path):
        if NO_KERNEL_HEADER.match(written):
            return [path, written]
        rest = _chain_to_heavy(tree, resolve(tree, path, written, is_quoted), seen)
        if rest:
            return [path] + rest
    return None


def unit_of(path):
    """Where a heavy header may appear once: a module, or one program of src/app."""
    folder, name = posixpath.split(path)
    if folder != 'src/app':
        return module_of(path) or path
    is_daemon = name.startswith(('daemon', 'dhisparsed'))
    return 'app (daemon)' if is_daemon else 'app (client)'


def check_heavy(tree):
    users = {}
    for path in tree.cpp_files():
        for line, written, _ in tree.includes(path):
            library = next((name for prefix, name in HEAVY_PREFIXES.items()
                            if written.startswith(prefix)), None)
            if library is None:
                continue
            if not path.endswith(('.cc', '.cu')):
                yield (path, line, f'{library} in a header spreads its compile time; include it in '
                                   f'one .cc behind a plain header of ours')
            elif not path.startswith(('tests/', 'bench/')):
                users.setdefault((unit_of(path), library), {}).setdefault(path, line)
    for (unit, library), lines in users.items():
        first, *others = sorted(lines)
        for path in others:
            yield (path, lines[path], f'{unit} already includes {library} in {first}; go through '
                                      f'that file\'s plain header')


def check_foreign(tree):
    for path in tree.cpp_files():
        for line, written, _ in tree.includes(path):
            if GRPC.match(written) and not GRPC_HOMES.match(path):
                yield (path, line, f'{written}: gRPC and generated contracts stay in src/server '
                                   f'and the client program; use dhisparse/server.h or client.h')
            if CUDA.match(written) and not CUDA_HOMES.match(path):
                yield (path, line, f'{written}: CUDA headers stay in src/device and kernels; use '
                                   f'dhisparse/device.h or stream.h')


RULES = {'include-order': check_order, 'kernel-header': check_kernel_headers,
         'heavy-header': check_heavy, 'foreign-header': check_foreign}

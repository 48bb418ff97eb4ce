#!/usr/bin/env python3
"""What ptxas says of every kernel, and what the hot ones cost by roofline. No GPU needed.

    python3 bench/kernels/ptxas_table.py [--jobs N] [--arch sm_90a ...] > docs/results/ptxas.md

Compiles every kernels/*/*.cu with the options and for the architectures of its CMakeLists.txt. Exit
1 when a kernel of HOT_KERNELS spills registers, or when one of them was not found.
"""
import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCHITECTURES = ["sm_80", "sm_90a", "sm_100a"]
NVCC_OPTIONS = ["-std=c++20", "--expt-relaxed-constexpr", "-diag-suppress=554", "-O3", "-lineinfo"]

# Decode steps spend their time in these.
HOT_KERNELS = [
    "tensor_core_attention_kernel", "warpgroup_attention_kernel", "merge_segments_kernel",
    "index_score_kernel", "top_k_kernel", "top_k_split_kernel", "copy_records_kernel",
    "mma_gemm_kernel", "mark_kernel", "list_kernel", "place_kernel", "assign_kernel", "pass_kernel",
    "append_rows_kernel",
]


class Sources:
    """CUDA sources of one op, and the options its CMakeLists.txt adds."""

    def __init__(self, folder):
        text = (folder / "CMakeLists.txt").read_text()
        call = re.search(r"dhs_cuda_kernel\((\w+)\s+SOURCES([^)]*)\)", text)
        self.op = call.group(1) if call else folder.name
        everywhere, _, sm90a = call.group(2).partition("SM90A_SOURCES") if call else ("", "", "")
        self.files = [folder / name for name in everywhere.split()]
        self.sm90a_files = [folder / name for name in sm90a.split()]
        option = re.search(r"target_compile_options\(dhs_cuda_\w+ PRIVATE ([^)]*)\)", text)
        self.options = option.group(1).split() if option else []

    def jobs(self, architectures):
        """Yields what compile_one takes."""
        for arch in architectures:
            for file in self.files + (self.sm90a_files if arch == "sm_90a" else []):
                yield self.op, file, self.options, arch



def find_sources():
    folders = sorted(path.parent for path in ROOT.glob("kernels/*/CMakeLists.txt"))
    return [sources for sources in map(Sources, folders) if sources.files]


def compile_one(job):
    op, source, options, arch = job
    with tempfile.TemporaryDirectory() as folder:
        command = ["nvcc", "-cubin", f"-arch={arch}", "-Xptxas", "-v", *NVCC_OPTIONS, *options,
                   f"-I{ROOT}", f"-I{ROOT / 'include'}", str(source), "-o", f"{folder}/out.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{source} does not compile for {arch}:\n{done.stderr}")
    return [(op, arch, *kernel) for kernel in parse_ptxas(done.stderr)]


def parse_ptxas(text):
    """Yields (mangled name, registers, static shared bytes, spill stores, spill loads)."""
    name, stores, loads = None, 0, 0
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)'", line):
            name = found.group(1)
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stores, loads = int(found.group(1)), int(found.group(2))
        elif name and (found := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            yield name, int(found.group(1)), int(shared.group(1)) if shared else 0, stores, loads
            name = None


def demangle(names):
    filter_program = shutil.which("cu++filt") or shutil.which("c++filt")
    if filter_program is None:
        return {name: name for name in names}
    done = subprocess.run([filter_program], input="\n".join(names), capture_output=True, text=True,
                          check=True)
    return dict(zip(names, map(shorten, done.stdout.splitlines())))


def without_call(name):
    """Drops the list of parameters: what stands in the last balanced parentheses."""
    depth = 0
    for i in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[i], 0)
        if depth == 0 and name[i] == "(":
            return name[:i]
    return name


def shorten(name):
    name = name.replace("(anonymous namespace)::", "").replace("dhs::", "").replace("cuda::", "")
    name = re.sub(r"^(void|static) ", "", without_call(name))
    return re.sub(r"\((?:\w|::| )+\)(-?\w+)", r"\1", name).replace(" >", ">")


def base_name(name):
    return name.split("<")[0].split("::")[-1]


# ---- Rooflines ----------------------------------------------------------------------------------

# Bytes/s of device memory, bf16 and fp8 FLOP/s (dense, vendors' figures), bytes/s of full 128-byte
# lines over PCIe 5.0 x16.
MACHINES = {
    "H200": {"memory": 4.8e12, "bf16": 0.99e15, "fp8": 1.98e15, "link": 53e9},
    "B200": {"memory": 8.0e12, "bf16": 2.25e15, "fp8": 4.5e15, "link": 53e9},
}


class Call:
    """One call of a hot kernel: what it must move and compute at least."""

    def __init__(self, kernel, shape, memory=0, flops=0, link=0, math="bf16"):
        self.kernel, self.shape = kernel, shape
        self.memory, self.flops, self.link, self.math = memory, flops, link, math

    def bounds(self, machine):
        """Microseconds by resource."""
        return {"device memory": self.memory / machine["memory"] * 1e6,
                "tensor cores": self.flops / machine[self.math] * 1e6,
                "host link": self.link / machine["link"] * 1e6}


def attention(rows, row_bytes, name):
    flops = 2 * rows * 2048 * 64 * (2 * 512 + 64)
    moved = rows * (2048 * row_bytes + 64 * (512 + 64) * 4 + 64 * 512 * 4)
    return Call("tensor_core_attention_kernel / warpgroup_attention_kernel",
                f"{name}, {rows} query rows x 2048, 64 heads", moved, flops)


def index_score(rows, key_bytes, name):
    keys = 100_000
    return Call("index_score_kernel", f"{name}, {rows} sequences x 100K keys, 32 heads x 128",
                rows * keys * (key_bytes + 4), 2 * rows * keys * 32 * 128)


def gather(orders, record_bytes):
    lines = -(-record_bytes // 128)
    return Call("copy_records_kernel", f"{orders} records of {record_bytes} B",
                orders * record_bytes, 0, orders * lines * 128)


def gemm(m, n, k, math, bytes_of_weight):
    return Call("mma_gemm_kernel", f"{math}, {m} x {n} x {k}",
                n * k * bytes_of_weight + 4 * m * (n + k), 2 * m * n * k, 0, math)


def hot_calls():
    return [
        *(attention(rows, size, name) for name, size in (("bf16", 1152), ("fp8", 656))
          for rows in (1, 16, 64, 256)),
        *(index_score(rows, size, name) for name, size in (("bf16", 256), ("fp8", 132))
          for rows in (1, 16, 64)),
        *(Call("top_k_kernel / top_k_split_kernel", f"{rows} x {scores} scores, k = 2048",
               4 * 4 * rows * scores) for rows, scores in ((1, 100_000), (16, 100_000),
                                                           (16, 1_000_000))),
        *(gather(orders, size) for size in (656, 1152, 2624, 4608) for orders in (64, 2048)),
        *(Call("mark, list, place, assign (resolve)", f"{rows} query rows x 2048",
               rows * 2048 * (4 + 4 + 4 + 4 + 4)) for rows in (1, 16, 64)),
        *(gemm(m, n, k, math, size) for math, size in (("bf16", 2), ("fp8", 1))
          for n, k in ((24_576, 6144), (6144, 16_384)) for m in (1, 16, 64)),
    ]


def print_hot_calls():
    print("## Hot kernels: lower bounds by roofline\n")
    print("Compulsory bytes and FLOPs of one call over the limits of the machine: device memory "
          "4.8 and 8 TB/s,\nbf16 0.99 and 2.25 PFLOP/s, fp8 twice that, 53 GB/s of full 128-byte "
          "lines from pinned host memory. Not\nin it: launches (1 to 5 us each), waiting for the "
          "first answer (about 1 us, over PCIe 2 us), and that\n`mma.sync` alone does not reach "
          "the peak of sm_90 and sm_100. Resolve moves little: it is bound by the\nlatency of "
          "dependent loads and by its launches. The scores that top_k reads four times may come "
          "from\nL2 instead.\n")
    print("| kernel | call | device MB | host MB | GFLOP | H200 us | B200 us | bound by |")
    print("|---|---|---|---|---|---|---|---|")
    for call in hot_calls():
        times = {name: call.bounds(machine) for name, machine in MACHINES.items()}
        bound = max(times["H200"], key=times["H200"].get)
        print(f"| {call.kernel} | {call.shape} | {call.memory / 1e6:.2f} | {call.link / 1e6:.2f} "
              f"| {call.flops / 1e9:.2f} | {max(times['H200'].values()):.1f} "
              f"| {max(times['B200'].values()):.1f} | {bound} |")
    print()


# ---- Table --------------------------------------------------------------------------------------


def print_kernels(rows):
    print("## All kernels\n")
    print("Shared memory is what is declared statically; launches may add dynamic memory.\n")
    print("| op | kernel | arch | registers | shared B | spill stores B | spill loads B |")
    print("|---|---|---|---|---|---|---|")
    for op, arch, name, registers, shared, stores, loads in rows:
        print(f"| {op} | `{name}` | {arch} | {registers} | {shared} | {stores} | {loads} |")


def complaints(rows, is_complete):
    found = {base_name(row[2]) for row in rows}
    lines = [f"{name}: listed as hot, but no source has it" for name in HOT_KERNELS
             if is_complete and name not in found]
    for op, arch, name, _, _, stores, loads in rows:
        if base_name(name) in HOT_KERNELS and stores + loads > 0:
            lines.append(f"{op}: {name} on {arch} spills {stores} B stores, {loads} B loads")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="compilations at a time")
    parser.add_argument("--arch", nargs="+", default=ARCHITECTURES)
    parser.add_argument("--op", nargs="+", help="these ops only; hot kernels of others may miss")
    options = parser.parse_args()
    if shutil.which("nvcc") is None:
        sys.exit("nvcc was not found: put the CUDA 13 toolkit's bin folder on PATH")

    jobs = [job for sources in find_sources() if not options.op or sources.op in options.op
            for job in sources.jobs(options.arch)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        raw = [kernel for kernels in pool.map(compile_one, jobs) for kernel in kernels]
    names = demangle(sorted({row[2] for row in raw}))
    rows = [(row[0], row[1], names[row[2]], *row[3:]) for row in raw]
    rows.sort(key=lambda row: (row[0], row[2], options.arch.index(row[1])))

    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True)
    print("# Kernels as ptxas sees them\n")
    print("Generated by `python3 bench/kernels/ptxas_table.py > docs/results/ptxas.md`, "
          f"{version.stdout.splitlines()[-2].split(',')[-1].strip()}.\n")
    print_hot_calls()
    print_kernels(rows)
    problems = complaints(rows, is_complete=not options.op)
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

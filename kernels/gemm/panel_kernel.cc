#include "kernels/gemm/panel_kernel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <dnnl.hpp>
#include <exception>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "dhisparse/base.h"
#include "kernels/gemm/aligned_buffer.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/panel_loop.h"
#include "kernels/gemm/panel_verify.h"

namespace dhs {
namespace {

using dnnl::memory;

// The library would otherwise start its own team, and may split work (and sums) by its size.
class OneLibraryThread {
 public:
  OneLibraryThread() : previous_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneLibraryThread() { omp_set_num_threads(previous_); }
  OneLibraryThread(const OneLibraryThread&) = delete;
  OneLibraryThread& operator=(const OneLibraryThread&) = delete;

 private:
  const int previous_;
};

const dnnl::engine& library_engine() {
  static const auto& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives threads
  return engine;
}

// One compiled row tile. `id` finds this thread's operands for it.
struct Tile {
  int rows = 0;
  int id = 0;
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul primitive;
};

// The library's handles on this thread's operands of one tile; they follow scratch as it grows.
struct TileOperands {
  memory a, out, scratchpad, widened;
};

struct ThreadState {
  dnnl::stream stream{library_engine()};
  AlignedBuffer out, scratchpad, widened;
  std::vector<std::unique_ptr<TileOperands>> operands;  // by Tile::id
};

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

void point_at(memory& operand, void* data) {
  if (operand.get_data_handle() == data) return;
  const dnnl_status_t status = dnnl_memory_set_data_handle(operand.get(), data);
  DHS_CHECK(status == dnnl_success, "oneDNN status ", static_cast<int>(status));
}

std::byte* reserved(AlignedBuffer& buffer, int64_t bytes) {
  DHS_CHECK(buffer.reserve(bytes), "no memory for ", bytes, " bytes of gemm scratch");
  return buffer.data();
}

struct LibraryWeights : PanelWeights {
  memory handle;                     // kF32, kBf16
  const Bf16* widen_from = nullptr;  // kBf16Widened
};

class LibraryKernel : public PanelKernel {
 public:
  LibraryKernel(GemmMath math, int64_t columns, int64_t k)
      : math_(math),
        columns_(columns),
        k_(k),
        type_(math == GemmMath::kBf16 ? memory::data_type::bf16 : memory::data_type::f32) {
    compile();
  }

  TileRule rule() const override { return rule_; }
  void set_rule(TileRule rule) { rule_ = rule; }

  int64_t packed_bytes() const override {
    const int64_t bytes = static_cast<int64_t>(weights_desc_.get_size());
    return math_ == GemmMath::kBf16Widened ? bytes / 2 : bytes;
  }

  std::unique_ptr<PanelWeights> pack(TensorView<const float, 2> w,
                                     std::byte* packed) const override;
  const float* run(const PanelWeights& weights, int tile_rows, const void* a) const override;

 private:
  void compile();
  const Tile& tile_of(int rows) const;
  TileOperands& operands_of(const Tile& tile) const;

  const GemmMath math_;
  const int64_t columns_;
  const int64_t k_;
  const memory::data_type type_;
  TileRule rule_ = TileRule::kAnyTile;
  memory::desc weights_desc_;
  std::vector<Tile> tiles_;  // kTileRows
};

// All tiles share the layout the library prefers for the largest one. Throws dnnl::error.
void LibraryKernel::compile() {
  static std::atomic<int> next_id{0};
  OneLibraryThread serial;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  auto describe = [&](int64_t rows, const memory::desc& weights) {
    const memory::desc a({rows, k_}, type_, memory::dims{k_, 1});
    const memory::desc out({rows, columns_}, memory::data_type::f32, memory::dims{columns_, 1});
    return dnnl::matmul::primitive_desc({a, weights, out}, attributes, library_engine());
  };
  const memory::desc any({k_, columns_}, type_, memory::format_tag::any);
  weights_desc_ = describe(kGemmTileRows, any).weights_desc();
  for (int rows : kTileRows) {
    Tile tile{
        .rows = rows, .id = next_id++, .desc = describe(rows, weights_desc_), .primitive = {}};
    tile.primitive = dnnl::matmul(tile.desc);
    tiles_.push_back(std::move(tile));
  }
}

std::unique_ptr<PanelWeights> LibraryKernel::pack(TensorView<const float, 2> w,
                                                  std::byte* packed) const try {
  OneLibraryThread serial;
  dnnl::stream& stream = thread_state().stream;
  const memory::desc plain({k_, columns_}, memory::data_type::f32, memory::dims{1, w.strides[0]});
  memory source(plain, library_engine(), const_cast<float*>(w.data));
  auto weights = std::make_unique<LibraryWeights>();
  if (math_ != GemmMath::kBf16Widened) {
    weights->handle = memory(weights_desc_, library_engine(), packed);
    dnnl::reorder(source, weights->handle).execute(stream, source, weights->handle);
    return weights;
  }
  // The library's f32 layout, element by element in bf16.
  const int64_t bytes = static_cast<int64_t>(weights_desc_.get_size());
  std::byte* wide = reserved(thread_state().widened, bytes);
  memory target(weights_desc_, library_engine(), wide);
  dnnl::reorder(source, target).execute(stream, source, target);
  Bf16* narrow = reinterpret_cast<Bf16*>(packed);
  convert_to_bf16(reinterpret_cast<const float*>(wide), bytes / 4, narrow);
  weights->widen_from = narrow;
  return weights;
} catch (const std::exception&) {
  return nullptr;
}

const Tile& LibraryKernel::tile_of(int rows) const {
  const auto found = std::find(kTileRows.begin(), kTileRows.end(), rows);
  DHS_CHECK(found != kTileRows.end(), "no tile of ", rows, " rows");
  return tiles_[static_cast<size_t>(found - kTileRows.begin())];
}

TileOperands& LibraryKernel::operands_of(const Tile& tile) const {
  auto& all = thread_state().operands;
  const size_t id = static_cast<size_t>(tile.id);
  if (id >= all.size()) all.resize(id + 1);
  if (all[id] == nullptr) {
    const dnnl::engine& engine = library_engine();
    all[id] = std::make_unique<TileOperands>(
        TileOperands{.a = memory(tile.desc.src_desc(), engine, nullptr),
                     .out = memory(tile.desc.dst_desc(), engine, nullptr),
                     .scratchpad = memory(tile.desc.scratchpad_desc(), engine, nullptr),
                     .widened = memory(weights_desc_, engine, nullptr)});
  }
  return *all[id];
}

const float* LibraryKernel::run(const PanelWeights& weights, int tile_rows, const void* a) const {
  const Tile& tile = tile_of(tile_rows);
  ThreadState& state = thread_state();
  TileOperands& operands = operands_of(tile);
  const auto& packed = static_cast<const LibraryWeights&>(weights);
  const int64_t scratchpad_bytes = static_cast<int64_t>(tile.desc.scratchpad_desc().get_size());
  std::byte* out = reserved(state.out, tile_rows * columns_ * 4);
  point_at(operands.a, const_cast<void*>(a));
  point_at(operands.out, out);
  if (scratchpad_bytes > 0) {
    point_at(operands.scratchpad, reserved(state.scratchpad, scratchpad_bytes));
  }
  if (packed.widen_from != nullptr) {
    const int64_t count = static_cast<int64_t>(weights_desc_.get_size()) / 4;
    float* wide = reinterpret_cast<float*>(reserved(state.widened, count * 4));
    point_at(operands.widened, wide);
    convert_to_f32(DType::kBf16, packed.widen_from, count, wide);
  }
  const memory& right = packed.widen_from != nullptr ? operands.widened : packed.handle;
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, operands.a.get()},
                                       {DNNL_ARG_WEIGHTS, right.get()},
                                       {DNNL_ARG_DST, operands.out.get()},
                                       {DNNL_ARG_SCRATCHPAD, operands.scratchpad.get()}};
  OneLibraryThread serial;
  const dnnl_status_t status =
      dnnl_primitive_execute(tile.primitive.get(), state.stream.get(), 4, arguments);
  DHS_CHECK(status == dnnl_success, "matmul of ", tile_rows, " x ", columns_, " x ", k_,
            " failed with status ", static_cast<int>(status));
  return reinterpret_cast<const float*>(out);
}

// Null when the library has no kernel for the shape on this machine.
std::unique_ptr<LibraryKernel> try_library_kernel(GemmMath math, int64_t columns, int64_t k) {
  try {
    return std::make_unique<LibraryKernel>(math, columns, k);
  } catch (const dnnl::error& error) {
    log_warning("oneDNN has no matmul for ", columns, " x ", k, " (", error.what(),
                "); a slower loop of our own is used");
    return nullptr;
  }
}

std::unique_ptr<PanelKernel> make_verified(GemmMath math, int64_t columns, int64_t k) {
  if (math == GemmMath::kFp8) return make_fp8_kernel(columns, k);
  std::unique_ptr<LibraryKernel> kernel = try_library_kernel(math, columns, k);
  if (kernel == nullptr) return make_loop_kernel(math, columns, k);
  const TileRule rule = verified_rule(*kernel, math, columns, k);
  if (rule == TileRule::kOwnLoop) return make_loop_kernel(math, columns, k);
  kernel->set_rule(rule);
  return kernel;
}

}  // namespace

const PanelKernel& PanelKernel::get(GemmMath math, int64_t columns, int64_t k) {
  using Shape = std::tuple<GemmMath, int64_t, int64_t>;
  static std::mutex mutex;
  static auto& kernels = *new std::map<Shape, std::unique_ptr<PanelKernel>>;
  std::lock_guard lock(mutex);
  auto& kernel = kernels[{math, columns, k}];
  if (kernel == nullptr) kernel = make_verified(math, columns, k);
  return *kernel;
}

std::unique_ptr<PanelKernel> PanelKernel::make_with_rule(GemmMath math, TileRule rule,
                                                         int64_t columns, int64_t k) {
  if (math == GemmMath::kFp8) return make_fp8_kernel(columns, k);
  if (rule == TileRule::kOwnLoop) return make_loop_kernel(math, columns, k);
  std::unique_ptr<LibraryKernel> kernel = try_library_kernel(math, columns, k);
  if (kernel == nullptr) return make_loop_kernel(math, columns, k);
  kernel->set_rule(rule);
  return kernel;
}

int PanelKernel::tile_rows_for(int64_t num_rows) const {
  DHS_CHECK(num_rows >= 1 && num_rows <= kGemmTileRows, "rows of a tile: ", num_rows);
  if (rule() == TileRule::kFixedTile) return kFixedTileRows;
  if (rule() == TileRule::kOwnLoop) return static_cast<int>(num_rows);
  return *std::lower_bound(kTileRows.begin(), kTileRows.end(), static_cast<int>(num_rows));
}

}  // namespace dhs

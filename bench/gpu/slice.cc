#include "slice.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "kernels/add/add.h"
#include "kernels/norm/norm.h"
#include "model/attention.h"
#include "model/mlp.h"

namespace dhs::bench {
namespace {

// Of a sequence's hidden states in consecutive steps: chosen so that selections overlap as those of
// real text do, by 85 to 90 %.
constexpr float kCorrelation = 0.9965f;
constexpr int64_t kPlainSteps = 2;

int64_t fill_rows(const Bench& bench) { return bench.pick(2048, 32); }

std::vector<float> drifting_hidden(const SliceShape& shape, int64_t width) {
  const int64_t count = shape.batch * width;
  std::vector<float> hidden = normal_floats(shape.max_steps * count, 71);
  const float fresh = std::sqrt(1 - kCorrelation * kCorrelation);
  for (int64_t i = count; i < std::ssize(hidden); ++i) {
    hidden[i] = kCorrelation * hidden[i - count] + fresh * hidden[i];
  }
  return hidden;
}

template <class T>
T or_stop(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  log_error(value.status().ToString());
  std::exit(1);
}

}  // namespace

SliceContents::SliceContents(const Bench& bench, const TargetConfig& config,
                             const SliceShape& largest)
    : num_values(largest.context + fill_rows(bench)),
      index_keys(bench.uploaded(normal_floats(num_values * config.index_dim, 72))),
      latents(bench.uploaded(normal_floats(num_values * config.kv_lora_rank, 73))),
      ropes(bench.uploaded(normal_floats(num_values * config.qk_rope_dim, 74))),
      batch(largest.batch),
      hidden(bench.uploaded(drifting_hidden(largest, config.hidden_dim))),
      host_positions(rising(largest.context + largest.max_steps)) {
  positions = bench.uploaded(host_positions);
}

Slice::Slice(const Bench& bench, const SliceModel& model, const SliceContents& contents,
             const SliceShape& shape)
    : bench_(bench), model_(model), contents_(contents), shape_(shape) {
  const TargetConfig& config = model.config;
  const StoreLayout layout{.row = {RowFormat::kFp8, config.kv_lora_rank, config.qk_rope_dim},
                           .index_key = {RowFormat::kFp8, config.index_dim, kHostBlockTokens},
                           .max_query_rows = std::max(shape.batch, fill_rows(bench)),
                           .max_sequences = shape.batch,
                           .num_heads = config.num_heads};
  const int32_t layers[] = {config.num_layers};
  geometry_ = make_geometry(layers, layout.row.row_bytes(), layout.index_key.page_bytes(),
                            config.index_top_k);
  const int64_t blocks = shape.batch * ceil_div(shape.context + shape.max_steps, kHostBlockTokens);
  capacity_.chunk_bytes = bench.pick(int64_t{8} << 20, int64_t{8} << 10);
  const double rows = shape.rows_in_pool * static_cast<double>(blocks * kHostBlockTokens);
  capacity_.num_host_blocks = static_cast<int32_t>(blocks);
  capacity_.num_chunks = static_cast<int32_t>(
      ceil_div(blocks, geometry_.index_items_per_chunk(capacity_.chunk_bytes)) +
      ceil_div(static_cast<int64_t>(rows), geometry_.records_per_chunk(0, capacity_.chunk_bytes)) +
      1);
  manager_ = std::make_unique<KvManager>(geometry_, capacity_, shape.residency);
  store_ = or_stop(KvStore::create(bench.device, geometry_, capacity_, layout));
  ws_ = or_stop(reserve_workspace(bench.device, config, sharding_,
                                  {.max_query_rows = shape.batch,
                                   .max_logit_rows = 1,
                                   .max_context = shape.context + shape.max_steps}));
  admit_all();
  fill_context();
}

Slice::~Slice() { bench_.device.synchronize(); }

void Slice::admit_all() {
  const int64_t max_tokens = shape_.context + shape_.max_steps;
  const int64_t num_blocks = ceil_div(max_tokens, kHostBlockTokens);
  std::vector<int32_t> blocks, items;
  for (int64_t i = 0; i < shape_.batch; ++i) {
    auto memory = manager_->admit(max_tokens);
    DHS_CHECK(memory.has_value(), "sequence ", i, " of ", shape_.batch, " does not fit");
    for (HostBlockId block : memory->blocks()) blocks.push_back(block.value);
    items.insert(items.end(), memory->index_items().begin(), memory->index_items().end());
    DHS_CHECK(std::ssize(blocks) == (i + 1) * num_blocks, blocks.size(), " blocks");
    sequences_.push_back(*std::move(memory));
  }
  store_->apply(manager_->take_retired_blocks(), manager_->rebalance(), {});
  bench_.device.synchronize();
  block_table_ = bench_.uploaded(blocks);
  item_table_ = bench_.uploaded(items);
  host_sequences_ = rising(shape_.batch);
  sequence_of_row_ = bench_.uploaded(host_sequences_);
  for (int32_t sequence : host_sequences_) {
    host_fill_sequences_.insert(host_fill_sequences_.end(), fill_rows(bench_), sequence);
  }
  fill_sequences_ = bench_.uploaded(host_fill_sequences_);
  positions_ = bench_.device_memory(shape_.batch * int64_t{sizeof(int32_t)});
  std::vector<int32_t> positions;  // sequences are equally long
  for (int64_t step = 0; step < shape_.max_steps; ++step) {
    positions.insert(positions.end(), shape_.batch, static_cast<int32_t>(shape_.context + step));
  }
  step_positions_ = bench_.uploaded(positions);
  host_positions_.resize(shape_.batch);
}

void Slice::fill_context() {
  for (int64_t sequence = 0; sequence < shape_.batch; ++sequence) {
    for (int64_t first = 0; first < shape_.context; first += fill_rows(bench_)) {
      fill(sequence, first, std::min(fill_rows(bench_), shape_.context - first));
    }
  }
  bench_.device.synchronize();
}

void Slice::fill(int64_t sequence, int64_t first, int64_t count) {
  const TargetConfig& config = model_.config;
  const int64_t sequence_row = sequence * fill_rows(bench_);
  QueryRows rows = decode_rows();
  rows.sequence_of_row = view(fill_sequences_.as<const int32_t>() + sequence_row, count);
  rows.positions = view(contents_.positions.as<const int32_t>() + first, count);
  rows.host_sequence_of_row = std::span(host_fill_sequences_).subspan(sequence_row, count);
  rows.host_positions = std::span(contents_.host_positions).subspan(first, count);
  // Sequences start at different places of the same values.
  const int64_t from = (first + sequence * 1009) % (contents_.num_values - count + 1);
  auto values = [&](const MemoryRange& all, int64_t width) {
    return view(all.as<const float>() + from * width, count, width);
  };
  store_->choose_retrieval(count);
  store_->begin_step(rows);
  store_->append_index_keys(0, values(contents_.index_keys, config.index_dim));
  for (int layer = 0; layer < config.num_layers; ++layer) {
    store_->append_rows(layer, values(contents_.latents, config.kv_lora_rank),
                        values(contents_.ropes, config.qk_rope_dim));
  }
}

QueryRows Slice::decode_rows() const {
  const int64_t num_blocks = ceil_div(shape_.context + shape_.max_steps, kHostBlockTokens);
  const int64_t batch = shape_.batch;
  return {.sequence_of_row = view(sequence_of_row_.as<const int32_t>(), batch),
          .positions = view(positions_.as<const int32_t>(), batch),
          .block_table = view(block_table_.as<const int32_t>(), batch, num_blocks),
          .item_table = view(item_table_.as<const int32_t>(), batch, num_blocks),
          .host_sequence_of_row = host_sequences_,
          .host_positions = host_positions_};
}

void Slice::step() {
  const int64_t step = std::min(num_steps_++, shape_.max_steps - 1);
  const int64_t hidden_dim = model_.config.hidden_dim;
  const Stream stream = bench_.stream();
  bench_.device.copy(ws_.hidden.data,
                     contents_.hidden.as<const float>() + step * contents_.batch * hidden_dim,
                     shape_.batch * hidden_dim * int64_t{sizeof(float)}, stream);
  bench_.device.copy(positions_.data(), step_positions_.as<const int32_t>() + step * shape_.batch,
                     shape_.batch * int64_t{sizeof(int32_t)}, stream);
  std::fill(host_positions_.begin(), host_positions_.end(),
            static_cast<int32_t>(shape_.context + step));
  if (graph_ != nullptr) return bench_.device.launch(*graph_);
  const QueryRows rows = decode_rows();
  if (num_steps_ <= kPlainSteps || !bench_.device.has_graphs() || !store_->fits_one_pass(rows)) {
    return launch_step(rows);
  }
  // What the plain steps missed says who fetches in the steps to come.
  counters();
  store_->learn(0, true);
  is_fused_ = store_->choose_retrieval(shape_.batch);
  bench_.device.begin_capture();
  launch_step(rows);
  graph_ = bench_.device.end_capture();
  bench_.device.launch(*graph_);
}

// As a target's forward pass, without embedding and logits.
void Slice::launch_step(const QueryRows& rows) {
  const TargetConfig& config = model_.config;
  const int64_t n = shape_.batch;
  const AttentionContext attention{
      config, model_.rope_frequencies.data(), ws_, *store_, rows, bench_.device, nullptr, nullptr};
  const MlpContext mlp{config, ws_, n, n, bench_.device, nullptr, sharding_};
  auto normalize = [&](const DeviceVector<float>& weight) {
    launch_rms_norm({first_rows(ws_.hidden, n), weight.data(),
                     static_cast<float>(config.rms_norm_eps), first_rows(ws_.normed, n)},
                    bench_.stream());
  };
  auto add_to_residual = [&] {
    launch_add({first_rows(ws_.sublayer_out, n), first_rows(ws_.hidden, n)}, bench_.stream());
  };
  store_->begin_step(rows);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    normalize(model_.layer(layer).input_norm);
    run_attention(attention, model_.layer(layer), layer);
    add_to_residual();
    normalize(model_.layer(layer).post_attention_norm);
    run_mlp(mlp, model_.layer(layer), layer);
    add_to_residual();
  }
}

RowCacheCounters Slice::counters() {
  store_->queue_report(0);
  bench_.device.synchronize();
  return store_->counters(0, 0);
}

std::vector<int32_t> Slice::selection() const {
  return bench_.downloaded(static_cast<const int32_t*>(ws_.selection.data),
                           shape_.batch * model_.config.index_top_k);
}

}  // namespace dhs::bench

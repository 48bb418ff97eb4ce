#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dhisparse/base.h"
#include "dhisparse/device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/sampling/descending_order.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/sampling_tables.h"

namespace dhs {
namespace {

constexpr int64_t kPieceTokens = 8 << 10;  // of vocabulary: about 5 us
constexpr float kLikelyDepth = 10;         // few draws end below exp(-10) of the likeliest token
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One row's state; kept between rows for its memory.
struct RowScratch {
  std::vector<float> values;  // the logits, masked and made comparable
  std::vector<float> mass;    // exp of what is being summed
  DescendingOrder order;
  float largest = 0;
};

void adjust_logits(const RowSampling& row, std::vector<float>& values) {
  int32_t last = -1;
  for (int32_t i = 0; i < row.num_adjustments; ++i) {
    const LogitAdjustment& by = row.adjustments[i];
    DHS_CHECK(by.token > last, "adjustments: token ", by.token, " after ", last);
    last = by.token;
    if (static_cast<size_t>(by.token) >= values.size()) continue;
    float& value = values[static_cast<size_t>(by.token)];
    value = adjusted_logit(value, by);
    sampling_table(CpuIsa::kBase).load(&value, 1, &value);  // comparable again
  }
}

void load_row(const float* logits, int64_t vocab_size, const RowSampling& row,
              RowScratch& scratch) {
  const SamplingTable& table = sampling_table(cpu_isa());
  scratch.values.resize(static_cast<size_t>(vocab_size));
  scratch.mass.resize(static_cast<size_t>(vocab_size));
  table.load(logits, vocab_size, scratch.values.data());
  adjust_logits(row, scratch.values);
  for (int32_t i = 0; i < row.num_masked_tokens; ++i) {
    const int32_t token = row.masked_tokens[i];
    if (token >= 0 && token < vocab_size) scratch.values[static_cast<size_t>(token)] = -kInfinity;
  }
  scratch.largest = table.largest(scratch.values.data(), vocab_size);
}

double sum_exponentials(RowScratch& scratch, float temperature) {
  const float largest_and_temperature[2] = {scratch.largest, temperature};
  return sampling_table(cpu_isa()).exponentials(scratch.values.data(),
                                                static_cast<int64_t>(scratch.values.size()),
                                                largest_and_temperature, scratch.mass.data());
}

// The lowest value whose mass is at least min_p times the largest mass, which is 1.
float lowest_value_of(const RowScratch& scratch, float min_p) {
  float lowest = scratch.largest;
  for (size_t i = 0; i < scratch.values.size(); ++i) {
    if (scratch.mass[i] >= min_p) lowest = std::min(lowest, scratch.values[i]);
  }
  return lowest;
}

// The part of the descending order that the filters keep. `total` is the mass of all tokens.
DescendingOrder::Prefix kept_prefix(const RowSampling& row, double total, RowScratch& scratch) {
  DescendingOrder::Limits limits;
  const int64_t vocab_size = static_cast<int64_t>(scratch.values.size());
  if (row.top_k > 0 && row.top_k < vocab_size) {
    limits.num_tokens = row.top_k;
    total = scratch.order.walk(limits).mass;  // softmax is over what top_k left
  }
  if (row.top_p < 1.0f) limits.mass = static_cast<double>(row.top_p) * total;
  if (row.min_p > 0.0f) limits.lowest_value = lowest_value_of(scratch, row.min_p);
  const bool keeps_all = limits.num_tokens > vocab_size && row.top_p >= 1.0f && row.min_p <= 0.0f;
  if (keeps_all) return {.num_tokens = vocab_size, .mass = total};  // no need to walk to the end
  return scratch.order.walk(limits);
}

// Leaves the mass of the kept tokens only. The order is of no use after it.
void drop_others(const DescendingOrder::Prefix& kept, RowScratch& scratch) {
  if (kept.last_token < 0) return;
  const float last = scratch.values[static_cast<size_t>(kept.last_token)];
  for (size_t i = 0; i < scratch.values.size(); ++i) {
    const bool is_kept = scratch.values[i] > last ||
                         (scratch.values[i] == last && static_cast<int32_t>(i) <= kept.last_token);
    if (!is_kept) scratch.mass[i] = 0;
  }
}

int32_t proposed_token(const RowSampling& row, int32_t i) {
  return row.proposed_tokens != nullptr ? row.proposed_tokens[i] : i;
}

bool accepts_draft(const RowSampling& row, double kept_mass, const RowScratch& scratch) {
  double proposed = 0;
  if (row.proposed_tokens == nullptr) proposed = row.proposed_probabilities[row.draft_token];
  for (int32_t i = 0; i < row.num_proposed && row.proposed_tokens != nullptr; ++i) {
    if (row.proposed_tokens[i] == row.draft_token) proposed = row.proposed_probabilities[i];
  }
  proposed = std::clamp(proposed, double{kLeastProposed}, 1.0);
  const double u = uniform(row.seed, row.sequence_idx + kAcceptStream, row.position);
  return u * proposed * kept_mass < scratch.mass[static_cast<size_t>(row.draft_token)];
}

// The first token, in the order of ids, at which the sum of mass reaches u of the whole.
int32_t invert_by_id(double u, double total, const RowScratch& scratch) {
  double sum = 0;
  int32_t last = 0;
  for (size_t i = 0; i < scratch.mass.size(); ++i) {
    if (scratch.mass[i] <= 0) continue;
    sum += scratch.mass[i];
    last = static_cast<int32_t>(i);
    if (sum >= u * total) break;
  }
  return last;
}

double sum_of_mass(const RowScratch& scratch) {
  double sum = 0;
  for (float mass : scratch.mass) sum += mass;
  return sum;
}

int32_t verify(const RowSampling& row, const DescendingOrder::Prefix& kept, RowScratch& scratch) {
  const auto vocab_size = static_cast<int32_t>(scratch.values.size());
  DHS_CHECK(row.draft_token < vocab_size, "draft token ", row.draft_token, " of ", vocab_size);
  DHS_CHECK(row.proposed_tokens != nullptr || row.num_proposed == vocab_size, "a proposal over ",
            row.num_proposed, " of ", vocab_size, " tokens without a list of them");
  drop_others(kept, scratch);
  if (accepts_draft(row, kept.mass, scratch)) return row.draft_token;
  const auto draft = static_cast<size_t>(row.draft_token);
  for (int32_t i = 0; i < row.num_proposed; ++i) {
    float& mass = scratch.mass[static_cast<size_t>(proposed_token(row, i))];
    const double left = mass - row.proposed_probabilities[i] * kept.mass;
    mass = static_cast<float>(std::max(left, 0.0));
  }
  scratch.mass[draft] = 0;
  double total = sum_of_mass(scratch);
  if (total <= kLeastResidual * kept.mass) {
    sum_exponentials(scratch, row.temperature);
    drop_others(kept, scratch);
    scratch.mass[draft] = 0;
    total = sum_of_mass(scratch);
  }
  return invert_by_id(uniform(row.seed, row.sequence_idx, row.position), total, scratch);
}

int32_t draw(const RowSampling& row, double total, RowScratch& scratch) {
  scratch.order.build(
      {scratch.values.data(), scratch.mass.data(), static_cast<int64_t>(scratch.values.size())},
      scratch.largest - kLikelyDepth * row.temperature);
  const DescendingOrder::Prefix kept = kept_prefix(row, total, scratch);
  if (has_proposal(row)) return verify(row, kept, scratch);
  const double u = uniform(row.seed, row.sequence_idx, row.position);
  // The first token at which the sum reaches u * kept.mass; never one of no mass, since the sum
  // before it is still short of that.
  return scratch.order.walk({.num_tokens = kept.num_tokens, .mass = u * kept.mass}).last_token;
}

void write_top_tokens(const BatchSamplingParams& params, int64_t row_idx, double log_total,
                      const RowScratch& scratch) {
  const int64_t room = params.top_tokens.sizes[1];
  const int64_t wanted = std::min<int64_t>(params.rows(row_idx).num_logprobs, room);
  int64_t filled = 0;
  auto value_at = [&](int64_t place) {
    return scratch.values[static_cast<size_t>(params.top_tokens(row_idx, place))];
  };
  float bar = wanted > 0 ? -kInfinity : kInfinity;  // what a token must exceed to be listed
  for (size_t token = 0; token < scratch.values.size(); ++token) {
    const float value = scratch.values[token];
    if (value <= bar) continue;
    int64_t place = filled < wanted ? filled++ : filled - 1;
    for (; place > 0 && value > value_at(place - 1); --place) {
      params.top_tokens(row_idx, place) = params.top_tokens(row_idx, place - 1);
    }
    params.top_tokens(row_idx, place) = static_cast<int32_t>(token);
    if (filled == wanted) bar = value_at(filled - 1);
  }
  for (int64_t place = 0; place < room; ++place) {
    const bool is_filled = place < filled;
    params.top_logprobs(row_idx, place) =
        is_filled ? static_cast<float>(value_at(place) - scratch.largest - log_total) : 0.0f;
    if (!is_filled) params.top_tokens(row_idx, place) = -1;
  }
}

void sample_row(const BatchSamplingParams& params, int64_t row_idx) {
  thread_local RowScratch scratch;
  const RowSampling& row = params.rows(row_idx);
  load_row(params.logits.row(row_idx), params.logits.sizes[1], row, scratch);
  if (scratch.largest == -kInfinity) {
    params.tokens(row_idx) = 0;
    params.logprobs(row_idx) = -kInfinity;
    write_top_tokens(params, row_idx, 0, scratch);
    return;
  }
  int32_t token;
  double total = 0;
  if (row.temperature > 0.0f) {
    total = sum_exponentials(scratch, row.temperature);
    token = draw(row, total, scratch);
  } else {
    const auto first = std::find(scratch.values.begin(), scratch.values.end(), scratch.largest);
    token = static_cast<int32_t>(first - scratch.values.begin());
  }
  if (row.temperature != 1.0f) total = sum_exponentials(scratch, 1.0f);
  const double log_total = std::log(total);
  const double value = scratch.values[static_cast<size_t>(token)];
  params.tokens(row_idx) = token;
  params.logprobs(row_idx) = static_cast<float>(value - scratch.largest - log_total);
  write_top_tokens(params, row_idx, log_total, scratch);
}

void launch_sampling_cpu(const BatchSamplingParams& params) {
  const int64_t num_rows = params.logits.sizes[0];
  const int64_t vocab_size = params.logits.sizes[1];
  if (num_rows == 0) return;
  DHS_CHECK(vocab_size >= 1, "empty vocabulary");
  DHS_CHECK(params.rows.sizes[0] == num_rows && params.tokens.sizes[0] == num_rows &&
                params.logprobs.sizes[0] == num_rows && params.top_tokens.sizes[0] == num_rows,
            "outputs do not have ", num_rows, " rows");
  DHS_CHECK(params.top_logprobs.sizes[1] == params.top_tokens.sizes[1], "room for ",
            params.top_tokens.sizes[1], " tokens, ", params.top_logprobs.sizes[1], " logprobs");
  const int64_t grain = std::max<int64_t>(1, kPieceTokens / vocab_size);
  parallel_for(num_rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) sample_row(params, row);
  });
}

}  // namespace

double uniform(uint64_t seed, uint32_t sequence_idx, uint32_t position) {
  return philox_uniform(seed, sequence_idx, position);
}

DHS_LAUNCHER(launch_sampling, BatchSamplingParams)

}  // namespace dhs

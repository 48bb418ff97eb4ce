#include "sim/sim_executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "dhisparse/base.h"
#include "dhisparse/counter_random.h"

namespace dhs::sim {
namespace {

constexpr uint64_t kAcceptance = 0x6472616674;  // what the random numbers are for
constexpr uint64_t kRequestSpread = 0x73707265616431;
constexpr uint64_t kTokenSpread = 0x73707265616432;
constexpr double kGoldenRatio = 0.6180339887498949;

// Around `acceptance`, at most `spread` of the way to 0 or 1, whichever is nearer. unit: of [0, 1).
double spread_out(double acceptance, double spread, double unit) {
  return acceptance + spread * std::min(acceptance, 1 - acceptance) * (2 * unit - 1);
}

bool is_prompt(const SequenceWork& work) { return work.num_prompt_tokens > 0; }

int64_t host_row_of(const SequenceMemory& memory, int64_t position) {
  return int64_t{memory.blocks()[position / kHostBlockTokens].value} * kHostBlockTokens +
         position % kHostBlockTokens;
}

// Positions in the order in which an exact LRU cache would have them, oldest first: the `count`
// latest of a group.
std::vector<int32_t> latest_rows(const Selections& selections, const SelectionProfile& profile,
                                 int group, int64_t count) {
  std::vector<int32_t> rows = selections.rows_by_recency(group);
  const int64_t num_fixed =
      std::min<int64_t>(selections.num_tokens(), profile.num_recent + profile.num_sinks);
  rows.resize(std::clamp<int64_t>(count - num_fixed, 0, std::ssize(rows)));
  std::reverse(rows.begin(), rows.end());
  for (int32_t i = 0; i < selections.num_tokens(); ++i) {
    const bool is_sink = i < profile.num_sinks;
    if (!is_sink && i < selections.num_tokens() - profile.num_recent) continue;
    rows.push_back(i);
  }
  return rows;
}

// Of every list the elements from `end` before its end on, at most so many.
std::vector<int64_t> slice_of_all(const std::vector<std::vector<int64_t>>& lists, int64_t end,
                                  int64_t count) {
  std::vector<int64_t> slice;
  for (const std::vector<int64_t>& list : lists) {
    const int64_t first = std::max<int64_t>(0, std::ssize(list) - end);
    const int64_t last = std::clamp<int64_t>(std::ssize(list) - end + count, 0, std::ssize(list));
    if (first < last) slice.insert(slice.end(), list.begin() + first, list.begin() + last);
  }
  return slice;
}

}  // namespace

SimExecutor::SimExecutor(const SimConfig& config, const Capacity& capacity,
                         const RecordedLoad* load)
    : config_(config),
      cost_(config),
      model_(make_profile(config)),
      load_(load),
      caches_(capacity.geometry, capacity.memory) {
  rows_.num_groups = config.run.sampled_groups;
  rows_.top_k = config.model.top_k;
  set_concurrency(config.workload.concurrency);
}

void SimExecutor::set_concurrency(int64_t concurrency) {
  const int64_t even = offered_on_rank(config_, concurrency) * config_.deployment.num_gpus;
  share_of_rank_ = static_cast<double>(concurrency) / static_cast<double>(even);
}

void SimExecutor::forget(RequestId request) { requests_.erase(request.value); }

// ---- Requests that arrive -----------------------------------------------------------------------

void SimExecutor::start_requests(const RankPlan& plan) {
  std::vector<const SequenceWork*> started;
  for (const SequenceWork& work : plan.work) {
    if (!is_prompt(work) || !work.wants_token) continue;
    const auto num_tokens = static_cast<int32_t>(work.first_position + std::ssize(work.tokens));
    const uint64_t key = trace::derived_key(static_cast<uint64_t>(config_.run.seed), work.seed);
    auto selections = load_ == nullptr
                          ? draw_selections(model_, key, num_tokens)
                          : replay_selections(*load_, recorded_request(*load_, work.request));
    const double unit = trace::random_unit(trace::derived_key(key, kRequestSpread), 0);
    requests_[work.request.value] = std::make_unique<Request>(Request{
        .selections = std::move(selections),
        .key = trace::derived_key(key, kAcceptance),
        .acceptance = spread_out(config_.draft.acceptance, config_.draft.request_spread, unit)});
    started.push_back(&work);
  }
  latest_.num_admitted = std::ssize(started);
  const bool is_resident = config_.residency.mode == ResidencyMode::kResident;
  if (!started.empty() && (is_resident || (is_first_ && config_.run.warm))) fill(started);
  if (!started.empty()) is_first_ = false;
}

// Of every started request its latest rows, as many as its share of the slots; the rows of all by
// turns, aligned at the latest, so that their ages are alike.
void SimExecutor::fill(const std::vector<const SequenceWork*>& started) {
  const bool is_resident = config_.residency.mode == ResidencyMode::kResident;
  for (int group = 0; group < config_.run.sampled_groups; ++group) {
    const int64_t share = caches_.num_slots(group) / std::ssize(started);
    std::vector<std::vector<int64_t>> rows;  // by request: host rows
    int64_t most = 0;
    for (const SequenceWork* work : started) {
      const Selections& selections = *requests_.at(work->request.value)->selections;
      const int64_t count = is_resident ? selections.num_tokens() : share;
      std::vector<int64_t>& host_rows = rows.emplace_back();
      for (int32_t position : latest_rows(selections, model_.profile(), group, count)) {
        host_rows.push_back(host_row_of(*work->memory, position));
      }
      most = std::max(most, std::ssize(host_rows));
    }
    for (int64_t end = most; end > 0; end -= config_.model.top_k) {
      caches_.fill(group, slice_of_all(rows, end, config_.model.top_k));
    }
  }
}

// ---- Requests that decode -----------------------------------------------------------------------

void SimExecutor::add_rows(const SequenceWork& work) {
  Request& request = *requests_.at(work.request.value);
  DHS_CHECK(request.selections->num_tokens() == work.first_position, "request ", work.request.value,
            " decodes at ", work.first_position, ", its selections at ",
            request.selections->num_tokens());
  const int64_t row_size = rows_.num_groups * rows_.top_k;
  for (int64_t i = 0; i < std::ssize(work.tokens); ++i) {
    rows_.sequence_of_row.push_back(static_cast<int32_t>(rows_.num_sequences));
    rows_.host_rows.push_back(host_row_of(*work.memory, work.first_position + i));
    const size_t offset = rows_.selection.size();
    rows_.selection.resize(offset + row_size);
    request.selections->next(view(rows_.selection.data() + offset, rows_.num_groups, rows_.top_k));
  }
  for (HostBlockId block : work.memory->blocks()) rows_.block_table.push_back(block.value);
  ++rows_.num_sequences;
  rows_.block_table.resize(rows_.num_sequences * rows_.max_num_blocks, 0);
}

// Accepting each draft with probability c after the one before it accepts j of them or more with
// probability c^j. The numbers of a request's steps are spread evenly from a random start on: the
// mean of a short run is near the expectation already.
int64_t SimExecutor::num_accepted(Request& request, int64_t num_drafts) {
  const double start = trace::random_unit(request.key, 0);
  double whole = 0;
  const double drawn =
      std::modf(start + static_cast<double>(request.num_steps++) * kGoldenRatio, &whole);
  int64_t accepted = 0;
  double reached = 1;
  while (accepted < num_drafts) {
    reached *= request.draft_acceptance[accepted];
    if (drawn >= reached) break;
    ++accepted;
  }
  return accepted;
}

void SimExecutor::propose(Request& request, int64_t num_drafts, SequenceResult& result) {
  result.proposed.resize(num_drafts);
  request.draft_acceptance.assign(num_drafts, request.acceptance);
  if (config_.draft.token_spread == 0) return;
  const uint64_t key = trace::derived_key(request.key, kTokenSpread);
  for (double& acceptance : request.draft_acceptance) {
    acceptance = spread_out(request.acceptance, config_.draft.token_spread,
                            trace::random_unit(key, request.num_proposed++));
    result.confidence.push_back(static_cast<float>(acceptance));
  }
}

void SimExecutor::run_decodes(const RankPlan& plan) {
  rows_.sequence_of_row.clear();
  rows_.selection.clear();
  rows_.host_rows.clear();
  rows_.block_table.clear();
  rows_.num_sequences = 0;
  rows_.max_num_blocks = 0;
  for (const SequenceWork& work : plan.work) {
    rows_.max_num_blocks = std::max(rows_.max_num_blocks, std::ssize(work.memory->blocks()));
  }
  for (const SequenceWork& work : plan.work) {
    if (!is_prompt(work)) add_rows(work);
  }
  caches_.run(rows_);
  for (const RowCounts& counts : caches_.counts_of_groups()) latest_.rows.add(counts);
  latest_.num_rows = rows_.num_rows();
  latest_.num_decodes = rows_.num_sequences;
}

// The results of all sequences, and the index rows that the step scans.
double SimExecutor::add_decode_results(const RankPlan& plan, StepResult& result) {
  double scanned = 0;
  size_t sequence_idx = 0;
  for (const SequenceWork& work : plan.work) {
    SequenceResult sequence;
    int64_t num_drawn = work.wants_token ? 1 : 0;
    if (!is_prompt(work)) {
      Request& request = *requests_.at(work.request.value);
      const int64_t accepted = num_accepted(request, work.num_draft_tokens);
      request.selections->reject(static_cast<int32_t>(work.num_draft_tokens - accepted));
      num_drawn += accepted;
      latest_.num_tokens += num_drawn;
      sequence.rows_selected = caches_.selected_of_sequence()[sequence_idx];
      sequence.rows_fetched = caches_.missed_of_sequence()[sequence_idx];
      ++sequence_idx;
      scanned += cost_.scan_rows(work.first_position + 1);
    }
    sequence.tokens.resize(num_drawn);
    if (num_drawn > 0) {
      propose(*requests_.at(work.request.value), work.num_tokens_to_draft, sequence);
    }
    result.sequences.push_back(std::move(sequence));
  }
  return scanned;
}

StepResult SimExecutor::execute(const RankPlan& plan) {
  latest_ = {};
  const RowCaches::Changes changes = caches_.apply(plan);
  latest_.chunks_released = changes.chunks_released;
  latest_.rows_refilled = changes.rows_refilled;
  start_requests(plan);
  run_decodes(plan);
  StepResult result;
  const double scanned = add_decode_results(plan, result);
  if (latest_.num_decodes == 0) return result;
  const bool is_proposing =
      std::any_of(plan.work.begin(), plan.work.end(),
                  [](const SequenceWork& work) { return work.num_tokens_to_draft > 0; });
  const double rows_each = static_cast<double>(latest_.num_rows) / latest_.num_decodes;
  // Of a sampled group's selected positions each stands for as many rows.
  latest_.fetched_rows = static_cast<double>(latest_.rows.missed) *
                         static_cast<double>(config_.model.rows_per_selection) /
                         config_.run.sampled_groups;
  latest_.times = cost_.times(
      {.query_rows = static_cast<double>(latest_.num_rows),
       .all_query_rows = latest_.num_rows * share_of_rank_ * config_.deployment.num_gpus,
       .scanned_rows = scanned,
       .scored_rows = scanned * rows_each,
       .fetched_rows = latest_.fetched_rows,
       .is_verify = latest_.num_rows > latest_.num_decodes,
       .is_proposing = is_proposing});
  result.elapsed = absl::Seconds(latest_.times.total());
  std::vector<GroupTraffic>& traffic = result.traffic.emplace_back();
  for (int group = 0; group < config_.run.sampled_groups; ++group) {
    traffic.push_back({.rows_missed = caches_.counts_of_groups()[group].missed,
                       .rows_resident = caches_.num_resident(group)});
  }
  return result;
}

}  // namespace dhs::sim

#include "engine/model_executor.h"

#include <algorithm>

#include "kernels/feed_tokens/feed_tokens.h"

namespace dhs {
namespace {

// A bucket's first steps run without a graph: they load and set up the kernels that it captures.
constexpr int kPlainSteps = 1;
constexpr int64_t kNoBucket = 0;

// One token of every sequence, each drawing the next.
bool is_plain_decode(const RankPlan& plan) {
  return std::all_of(plan.work.begin(), plan.work.end(), [](const SequenceWork& work) {
    return work.tokens.size() == 1 && work.wants_token;
  });
}

// The same, with drafts or without.
bool is_decode(const RankPlan& plan) {
  return std::all_of(plan.work.begin(), plan.work.end(), [](const SequenceWork& work) {
    return std::ssize(work.tokens) == 1 + work.num_draft_tokens && work.wants_token;
  });
}

int64_t max_logit_rows(const EngineConfig& config, const EnginePlan& plan) {
  const int64_t rows_per_draw = 1 + int64_t{plan.max_draft_tokens};
  return std::min<int64_t>(config.scheduler.max_batched_tokens,
                           config.scheduler.max_running * rows_per_draw);
}

absl::StatusOr<std::unique_ptr<Proposer>> load_proposer(const EngineConfig& config,
                                                        const EnginePlan& plan, TargetModel& target,
                                                        Device& device, Communicator* ranks) {
  const bool shares_requests = config.parallel.mode == ParallelMode::kTensor;
  DHS_ASSIGN_OR_RETURN(
      std::vector<float> temperatures,
      read_confidence_temperatures(config.draft.temperatures, plan.draft.num_proposals));
  const DraftOptions options{.max_query_rows = config.scheduler.max_batched_tokens,
                             .max_blocks = config.scheduler.max_running,
                             .max_context = plan.max_context,
                             .page_dtype = plan.layout.draft_page.dtype,
                             .communicator = shares_requests ? ranks : nullptr,
                             .confidence_temperatures = std::move(temperatures)};
  DHS_ASSIGN_OR_RETURN(std::unique_ptr<Draft> draft,
                       load_draft(config.draft, config.model.path, target, device, options));
  return Proposer::create(
      std::move(draft), device,
      {.vocab_size = plan.model.vocab_size,
       .max_blocks = config.scheduler.max_running,
       .tap_width = target.taps().sizes[1],
       .max_query_rows = config.scheduler.max_batched_tokens});
}

// Every batch of up to 8 sequences has its own graph; above, one in eight.
int64_t bucket_size(int64_t num_rows) { return num_rows <= 8 ? num_rows : round_up(num_rows, 8); }

// Null where another rank records the same. In data mode each rank has requests of its own.
absl::StatusOr<std::unique_ptr<SelectionRecorder>> open_recorder(Device& device,
                                                                 const Communicator* ranks,
                                                                 const EngineConfig& config,
                                                                 const EnginePlan& plan) {
  const int rank = ranks == nullptr ? 0 : ranks->rank();
  if (rank > 0 && config.parallel.mode == ParallelMode::kTensor) return nullptr;
  std::string path = config.residency.trace;
  if (rank > 0) absl::StrAppend(&path, ".", rank);
  // A draft's own groups select for other rows than the step's.
  const auto num_groups =
      std::ssize(plan.geometry.groups) - std::ssize(plan.draft.layers_per_group);
  return SelectionRecorder::create(device, {static_cast<int32_t>(num_groups), plan.geometry.top_k},
                                   {.path = std::move(path),
                                    .max_bytes = config.residency.trace_limit_bytes,
                                    .max_rows = config.scheduler.max_running});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelExecutor>> ModelExecutor::load(std::unique_ptr<Device> device,
                                                                   Communicator* ranks,
                                                                   const EngineConfig& config,
                                                                   const EnginePlan& plan) {
  device->attach_thread();
  Parts parts{.ranks = ranks};
  const ParallelMode mode = config.parallel.mode;
  DHS_ASSIGN_OR_RETURN(parts.model,
                       load_target_model(config.model.path, *device,
                                         {.max_query_rows = config.scheduler.max_batched_tokens,
                                          .max_logit_rows = max_logit_rows(config, plan),
                                          .max_context = plan.max_context,
                                          .gemm = config.device.gemm,
                                          .communicator = ranks,
                                          .parallel_mode = mode,
                                          .tapped_layers = plan.draft.target_layers,
                                          .taps_final_hidden = plan.draft.taps_final_hidden}));
  DHS_ASSIGN_OR_RETURN(parts.store,
                       KvStore::create(*device, plan.geometry, plan.capacity, plan.layout));
  if (plan.draft.num_proposals > 0) {
    DHS_ASSIGN_OR_RETURN(parts.proposer, load_proposer(config, plan, *parts.model, *device, ranks));
  }
  parts.can_capture =
      device->has_graphs() && parts.proposer == nullptr &&
      (ranks == nullptr || (mode == ParallelMode::kTensor && ranks->can_be_captured()));
  const auto num_stops = std::ssize(plan.model.eos_token_ids);
  const BatchLimits limits{
      .max_rows = config.scheduler.max_batched_tokens,
      .max_sequences = config.scheduler.max_running,
      .max_logit_rows = max_logit_rows(config, plan),
      .max_num_blocks = ceil_div(plan.max_context, kHostBlockTokens),
      .max_logprobs = config.limits.max_logprobs,
      .max_masked = config.limits.max_stop_token_ids + num_stops,
      .max_adjusted = std::min(config.limits.max_adjusted_tokens, plan.model.vocab_size),
      .has_draft_pages = plan.geometry.draft_page_bytes > 0};
  DHS_ASSIGN_OR_RETURN(BatchTables tables, BatchTables::create(*device, limits));
  if (!config.residency.trace.empty()) {
    DHS_ASSIGN_OR_RETURN(parts.recorder, open_recorder(*device, ranks, config, plan));
    parts.can_capture = false;
  }
  parts.device = std::move(device);
  auto executor =
      std::unique_ptr<ModelExecutor>(new ModelExecutor(std::move(parts), std::move(tables)));
  executor->parts_.store->queue_report(0);  // what describe() shows before the first step
  executor->parts_.device->synchronize();
  return executor;
}

ModelExecutor::ModelExecutor(Parts parts, BatchTables tables)
    : parts_(std::move(parts)), tables_(std::move(tables)) {
  // On the CPU a step is done when it is queued: nothing runs beside the host.
  const bool is_recording = parts_.recorder != nullptr;
  if (parts_.device->kind() == BackendKind::kCuda && !is_recording) max_in_flight_ = 2;
  if (is_recording) {
    parts_.store->watch_selections([this](int group, TensorView<const int32_t, 2> selection) {
      parts_.recorder->copy(group, selection);
    });
  }
  for (auto& event : done_) event = parts_.device->make_event();
}

ModelExecutor::~ModelExecutor() { parts_.device->synchronize(); }

void ModelExecutor::submit(const StepPlan& plan) {
  DHS_CHECK(plan.ranks.size() == 1, "a plan of ", plan.ranks.size(), " ranks for one");
  submit_part(plan.ranks.front(), plan.ranks.front().num_rows());
}

absl::Status ModelExecutor::exchanges() const {
  return parts_.ranks == nullptr ? absl::OkStatus() : parts_.ranks->status();
}

void ModelExecutor::submit_part(const RankPlan& plan, int64_t max_rank_rows) {
  DHS_CHECK(std::ssize(in_flight_) < max_in_flight_, in_flight_.size(), " steps are in flight");
  parts_.device->attach_thread();
  if (parts_.proposer != nullptr) parts_.proposer->begin_step(plan, tables_, *parts_.store);
  parts_.store->apply(plan.retired_blocks, plan.chunk_moves, plan.restores);
  for (size_t g = 0; g < plan.refill_rows.size(); ++g) {
    parts_.store->refill(static_cast<int>(g), plan.refill_rows[g]);
  }
  const int place = next_place_;
  next_place_ = 1 - next_place_;
  if (parts_.recorder != nullptr) parts_.recorder->begin_step(plan);
  if (max_rank_rows > 0 && exchanges().ok()) run_rows(plan, max_rank_rows, place);
  tables_.queue_results(place);
  if (parts_.proposer != nullptr) parts_.proposer->queue_results(place);
  parts_.store->queue_report(place);
  done_[place]->record(parts_.device->stream());
  remember(plan, place);
}

// The bucket of a step that can be captured.
int64_t ModelExecutor::bucket_of(const RankPlan& plan) const {
  if (!parts_.can_capture) return kNoBucket;
  if (!is_plain_decode(plan)) return kNoBucket;
  const int64_t rows = bucket_size(std::ssize(plan.work));
  return rows <= tables_.limits().max_sequences ? rows : kNoBucket;
}

void ModelExecutor::run_rows(const RankPlan& plan, int64_t max_rank_rows, int place) {
  const int64_t bucket_rows = bucket_of(plan);
  tables_.lay_out(plan, std::max(plan.num_rows(), bucket_rows), [this](const SequenceWork& work) {
    return parts_.proposer == nullptr ? BatchTables::DrawnFrom{}
                                      : parts_.proposer->drawn_from(work);
  });
  const bool is_fused = parts_.store->choose_retrieval(tables_.num_rows());
  if (bucket_rows == kNoBucket || !parts_.store->fits_one_pass(tables_.batch().rows)) {
    return launch_rows(plan, max_rank_rows, place);
  }
  Bucket& bucket = buckets_[{bucket_rows, is_fused}];
  if (bucket.num_plain_steps < kPlainSteps) {
    ++bucket.num_plain_steps;
    return launch_rows(plan, max_rank_rows, place);
  }
  if (bucket.graph == nullptr) {
    parts_.device->begin_capture();
    launch_rows(plan, max_rank_rows, place);
    bucket.graph = parts_.device->end_capture();
  }
  parts_.device->launch(*bucket.graph);
  ++num_graph_launches_;
}

// Everything a step computes: no host work depends on its data, so it can be captured.
void ModelExecutor::launch_rows(const RankPlan& plan, int64_t max_rank_rows, int place) {
  const TraceRange trace("step");
  launch_feed_tokens(
      {.drawn = tables_.newest(), .draw_of_row = tables_.draw_of_row(), .tokens = tables_.tokens()},
      parts_.device->stream());
  TokenBatch batch = tables_.batch();
  batch.max_rank_rows = max_rank_rows;
  parts_.store->begin_step(batch.rows);
  parts_.model->forward(batch, *parts_.store, nullptr);
  launch_sampling(tables_.sampling(parts_.model->logits()), parts_.device->stream());
  launch_accept_chain(tables_.accept_chain(), parts_.device->stream());
  if (parts_.proposer == nullptr) return;
  parts_.proposer->launch(plan, tables_, parts_.model->taps(), *parts_.store, place);
}

void ModelExecutor::remember(const RankPlan& plan, int place) {
  InFlight step;
  step.place = place;
  step.is_decode = is_decode(plan);
  int32_t num_draws = 0;
  int32_t num_rows = 0;
  for (const SequenceWork& work : plan.work) {
    step.sequence_rows.push_back(work.memory->index());
    std::optional<Draw> draw;
    if (work.wants_token) {
      draw = Draw{num_draws++, num_rows, work.sampling->num_top_logprobs, work.num_tokens_to_draft};
      num_rows += 1 + work.num_draft_tokens;
    }
    step.draws.push_back(draw);
  }
  if (parts_.proposer != nullptr) parts_.proposer->remember(plan, place);
  in_flight_.push_back(std::move(step));
}

std::vector<GroupTraffic> ModelExecutor::traffic_since(int place) {
  const KvStore& store = *parts_.store;
  const size_t num_groups = store.geometry().groups.size();
  rows_missed_.resize(num_groups);
  std::vector<GroupTraffic> traffic;
  for (size_t g = 0; g < num_groups; ++g) {
    const int64_t missed = store.counters(place, static_cast<int>(g)).resolve.missed;
    traffic.push_back({.rows_missed = missed - std::exchange(rows_missed_[g], missed),
                       .rows_resident = store.resident_rows(place, static_cast<int>(g))});
  }
  return traffic;
}

absl::StatusOr<StepResult> ModelExecutor::collect() {
  DHS_CHECK(!in_flight_.empty(), "no step is in flight");
  parts_.device->attach_thread();
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  done_[step.place]->synchronize();
  collected_place_ = step.place;
  parts_.store->learn(step.place, step.is_decode);
  DHS_RETURN_IF_ERROR(exchanges());
  if (parts_.recorder != nullptr) parts_.recorder->write_step();
  StepResult result;
  result.traffic.push_back(traffic_since(step.place));
  result.sequences.resize(step.draws.size());
  for (size_t i = 0; i < step.draws.size(); ++i) {
    SequenceResult& sequence = result.sequences[i];
    const KvStore& store = *parts_.store;
    sequence.rows_selected = store.selected_of_sequence(step.place, step.sequence_rows[i]);
    sequence.rows_fetched = store.missed_of_sequence(step.place, step.sequence_rows[i]);
    if (step.draws[i].has_value()) add_draw(step.place, *step.draws[i], sequence);
  }
  return result;
}

// The drafts that were accepted and the token behind them; then what was proposed to follow.
void ModelExecutor::add_draw(int place, const Draw& draw, SequenceResult& result) const {
  const int32_t num_accepted = tables_.num_accepted(place, draw.draw);
  for (int32_t row = draw.first_row; row <= draw.first_row + num_accepted; ++row) {
    result.tokens.push_back(tables_.result(place, row, draw.num_logprobs));
  }
  if (parts_.proposer == nullptr || draw.num_wanted == 0) return;
  parts_.proposer->add_results(place, draw.draw, draw.num_wanted, result);
}

void ModelExecutor::describe(EngineState& state) const {
  state.device = parts_.device->description();
  const std::optional<absl::Duration> link_time = parts_.device->emulated_link_time();
  state.link_emulated = link_time.has_value();
  state.emulated_link_time = link_time.value_or(absl::ZeroDuration());
  const KvStore& store = *parts_.store;
  const KvGeometry& geometry = store.geometry();
  state.groups.resize(geometry.groups.size());
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    const RowCacheCounters counters = store.counters(collected_place_, g);
    GroupState& group = state.groups[g];
    group.first_layer = geometry.groups[g].first_layer;
    group.num_layers = geometry.groups[g].num_layers;
    group.record_bytes = geometry.groups[g].record_bytes;
    group.capacity_rows = store.capacity_rows(g);
    group.resident_rows = store.resident_rows(collected_place_, g);
    group.rows_selected = counters.resolve.selected;
    group.rows_hit = counters.resolve.hit;
    group.rows_missed = counters.resolve.missed;
    group.fetched_bytes = counters.fetched_bytes;
    group.rows_refilled = counters.refilled;
    group.refilled_bytes = counters.refilled_bytes;
    group.rows_evicted = counters.resolve.evicted;
    group.rows_released = counters.released;
  }
}

}  // namespace dhs

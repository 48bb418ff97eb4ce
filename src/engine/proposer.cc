#include "engine/proposer.h"

#include <algorithm>

namespace dhs {
namespace {

// Beyond that many a matrix takes longer the more rows there are.
constexpr int64_t kMostPending = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<Proposer>> Proposer::create(std::unique_ptr<Draft> draft,
                                                           Device& device, const Limits& limits) {
  DHS_ASSIGN_OR_RETURN(
      PendingRows pending,
      PendingRows::create(device, std::min(kMostPending, limits.max_query_rows), limits.tap_width));
  auto proposer =
      std::unique_ptr<Proposer>(new Proposer(std::move(draft), device, limits, std::move(pending)));
  for (Place& place : proposer->places_) {
    DHS_ASSIGN_OR_RETURN(place.memory, carve(device, [&](ArenaCarver& carver) {
                           proposer->lay_out(carver, place.proposals);
                         }));
    DHS_ASSIGN_OR_RETURN(place.host, device.allocate_host(proposer->results_bytes_));
  }
  return proposer;
}

Proposer::Proposer(std::unique_ptr<Draft> draft, Device& device, const Limits& limits,
                   PendingRows pending)
    : draft_(std::move(draft)),
      device_(device),
      limits_(limits),
      pending_(std::move(pending)),
      kept_(limits.max_blocks) {
  ArenaCarver carver(nullptr);
  const int64_t drafts = limits.max_blocks * draft_->description().num_proposals;
  carver.take<int32_t>(drafts);
  carver.take<float>(drafts);
  results_bytes_ = carver.bytes();
}

void Proposer::lay_out(ArenaCarver& carver, Proposals& proposals) const {
  const DraftDescription& draft = draft_->description();
  const int64_t blocks = limits_.max_blocks;
  const int64_t rows = blocks * draft.num_proposals;
  proposals.drafts = view(carver.take<int32_t>(rows).data, blocks, int64_t{draft.num_proposals});
  proposals.confidence = view(carver.take<float>(rows).data, blocks, int64_t{draft.num_proposals});
  const bool has_candidates = draft.kind == ProposalKind::kCandidates;
  const int64_t candidates = has_candidates ? draft.num_candidates : 0;
  proposals.candidates = view(carver.take<int32_t>(rows * candidates).data, rows, candidates);
  const int64_t dense = draft.kind == ProposalKind::kDense ? limits_.vocab_size : 0;
  const int64_t width = has_candidates ? candidates : dense;
  proposals.probabilities = view(carver.take<float>(rows * width).data, rows, width);
}

BatchTables::DrawnFrom Proposer::drawn_from(const SequenceWork& work) const {
  const DraftDescription& draft = draft_->description();
  const SamplingParams& sampling = *work.sampling;
  if (draft.kind == ProposalKind::kChosen || sampling.temperature <= 0) return {};
  if (sampling.is_repeatable) return {};
  const Kept& kept = kept_[work.memory->index()];
  DHS_CHECK(kept.request == work.request, "request ", work.request.value,
            " verifies drafts that were not proposed to it");
  const Proposals& proposals = places_[kept.place].proposals;
  const int64_t first = kept.block * draft.num_proposals;
  BatchTables::DrawnFrom drawn{
      .num_proposed = static_cast<int32_t>(proposals.probabilities.sizes[1]),
      .probabilities = proposals.probabilities.row(first),
      .stride = proposals.probabilities.sizes[1]};
  if (draft.kind == ProposalKind::kCandidates) drawn.tokens = proposals.candidates.row(first);
  return drawn;
}

void Proposer::begin_step(const RankPlan& plan, const BatchTables& tables, KvStore& kv) {
  if (!pending_.can_add(plan) || !pending_.can_stay(plan)) append_pending(tables, kv);
  waits_ = pending_.can_add(plan);
}

void Proposer::append_pending(const BatchTables& tables, KvStore& kv) {
  if (pending_.is_empty()) return;
  const TraceRange trace("draft of steps before");
  const DraftStep step = pending_.rows(tables);
  kv.continue_step(step.rows);
  draft_->append(step, kv);
  pending_.clear();
}

void Proposer::launch(const RankPlan& plan, const BatchTables& tables,
                      TensorView<const float, 2> taps, KvStore& kv, int place) {
  const TraceRange trace("draft");
  launch_anchor_rows(tables.anchor_rows(), device_.stream());
  if (waits_) return pending_.add(plan, tables, taps);
  draft_->append({tables.batch().rows, tables.next_tokens(), taps}, kv);
  const DraftBlocks blocks = tables.draft_blocks();
  if (blocks.num_wanted == 0 || blocks.num_blocks() == 0) return;
  const Proposals& all = places_[place].proposals;
  const auto first = [](const auto& tensor, int64_t rows) {
    return view(tensor.data, rows, tensor.sizes[1]);
  };
  const int64_t n = blocks.num_blocks();
  const int64_t rows = n * draft_->description().num_proposals;
  draft_->propose(blocks, kv,
                  {.drafts = first(all.drafts, n),
                   .confidence = first(all.confidence, n),
                   .candidates = first(all.candidates, rows),
                   .probabilities = first(all.probabilities, rows)});
}

void Proposer::remember(const RankPlan& plan, int place) {
  int64_t block = 0;
  for (const SequenceWork& work : plan.work) {
    if (!work.wants_token) continue;
    kept_[work.memory->index()] = {work.request, place, block++};
  }
}

void Proposer::queue_results(int place) {
  device_.copy(places_[place].host.data(), places_[place].memory.data(), results_bytes_,
               device_.stream());
}

void Proposer::add_results(int place, int64_t block, int64_t num_wanted,
                           SequenceResult& result) const {
  const DraftDescription& draft = draft_->description();
  const Place& from = places_[place];
  const auto on_host = [&](const auto* original) {
    const auto offset = reinterpret_cast<const std::byte*>(original) - from.memory.data();
    return reinterpret_cast<decltype(original)>(from.host.data() + offset);
  };
  const int64_t count = std::min<int64_t>(num_wanted, draft.num_proposals);
  const int32_t* drafts = on_host(from.proposals.drafts.row(block));
  result.proposed.assign(drafts, drafts + count);
  if (!draft.has_confidence) return;
  const float* confidence = on_host(from.proposals.confidence.row(block));
  result.confidence.assign(confidence, confidence + count);
}

}  // namespace dhs

// Who is on the device: admission, coverage, parking.
#include <algorithm>

#include "scheduler/sequence.h"

namespace dhs {

std::optional<int> choose_rank(std::span<const RankLoad> ranks) {
  std::optional<int> best;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].can_admit) continue;
    // a / m > b / n as a n > b m: no rounding.
    auto share = [&](const RankLoad& rank, const RankLoad& other) {
      return rank.optional_chunks * (other.num_running + 1);
    };
    const int64_t more_cached =
        best.has_value() ? ranks[i].cached_tokens - ranks[*best].cached_tokens : 1;
    const bool is_better = more_cached != 0
                               ? more_cached > 0
                               : share(ranks[i], ranks[*best]) > share(ranks[*best], ranks[i]);
    if (is_better) best = static_cast<int>(i);
  }
  return best;
}

int64_t Scheduler::num_running_on(int rank) const {
  return std::count_if(running_.begin(), running_.end(),
                       [&](const auto& sequence) { return sequence->rank == rank; });
}

void Scheduler::park(Sequence& sequence) {
  kv_[sequence.rank]->park(sequence.memory);
  sequence.drafts.clear();
  sequence.num_drafts_to_come = 0;  // they would be of memory that it has given up
  ++sequence.usage.times_parked;
  ++num_parks_;
  Sequence::insert(Sequence::take(sequence, running_), waiting_);
}

void Scheduler::park_paused() {
  for (size_t i = 0; i < running_.size();) {
    if (running_[i]->is_paused) {
      park(*running_[i]);
    } else {
      ++i;
    }
  }
}

// False when nothing runs there.
bool Scheduler::park_last_on(int rank) {
  const auto last = std::find_if(running_.rbegin(), running_.rend(),
                                 [&](const auto& sequence) { return sequence->rank == rank; });
  if (last == running_.rend()) return false;
  ++num_preemptions_;
  park(**last);
  return true;
}

// ---- Changes ------------------------------------------------------------------------------------

void Scheduler::set_config(const SchedulerConfig& config) {
  DHS_CHECK(config.max_running <= config.max_batched_tokens, "max_running ", config.max_running,
            " exceeds max_batched_tokens ", config.max_batched_tokens);
  config_ = config;
  for (int rank = 0; rank < std::ssize(kv_); ++rank) {
    while (num_running_on(rank) > config_.max_running) park_last_on(rank);
  }
}

void Scheduler::set_residency(const ResidencyConfig& residency) {
  for (int rank = 0; rank < std::ssize(kv_); ++rank) {
    while (!kv_[rank]->set_residency(residency)) {
      DHS_CHECK(park_last_on(rank), "nothing is on the device, and it does not fit");
    }
  }
}

// ---- Coverage -----------------------------------------------------------------------------------

bool Scheduler::cover(Sequence& sequence) {
  const auto covers = [&] {
    return kv_[sequence.rank]->cover(sequence.memory, sequence.num_reached_tokens(),
                                     sequence.num_computed_tokens, sequence.num_known_tokens());
  };
  if (covers()) return true;
  if (sequence.drafts.empty()) return false;
  sequence.drafts.clear();
  return covers();
}

// Every running request covers what it is to compute next. Where memory is short drafts are given
// up, and then the last in order makes room: at worst the request itself.
void Scheduler::cover_running() {
  for (size_t i = 0; i < running_.size();) {
    Sequence& sequence = *running_[i];
    bool is_parked = false;
    while (!is_parked && !sequence.is_ending() && !cover(sequence)) {
      const auto last = std::find_if(running_.rbegin(), running_.rend(), [&](const auto& other) {
        return other->rank == sequence.rank;
      });
      is_parked = last->get() == &sequence;
      ++num_preemptions_;
      park(**last);
    }
    if (!is_parked) ++i;
  }
}

// ---- Admission ----------------------------------------------------------------------------------

namespace {

// num_lookahead: tokens behind all that is known, that proposing writes.
KvDemand demand_of(const GenerateRequest& request, std::span<const TokenId> tokens,
                   int64_t max_tokens, int64_t num_lookahead) {
  KvDemand demand{.max_tokens = max_tokens,
                  .device_tokens = std::min(std::ssize(tokens) + 1 + num_lookahead, max_tokens),
                  .known_tokens = std::ssize(tokens)};
  if (!request.bypass_prefix_cache) {
    demand.tokens = tokens;
    demand.salt = request.cache_salt;
  }
  return demand;
}

}  // namespace

std::vector<RankLoad> Scheduler::loads(const KvDemand& demand) const {
  std::vector<RankLoad> loads;
  for (size_t rank = 0; rank < kv_.size(); ++rank) {
    const int64_t running = num_running_on(static_cast<int>(rank));
    const int64_t cached = kv_.size() > 1 ? kv_[rank]->cached_tokens(demand) : 0;
    loads.push_back({.can_admit = running < config_.max_running && kv_[rank]->can_admit(demand),
                     .optional_chunks = kv_[rank]->num_optional_chunks(),
                     .num_running = running,
                     .cached_tokens = 2 * cached >= std::ssize(demand.tokens) ? cached : 0});
  }
  return loads;
}

// Whoever cannot start holds those behind it. But where host memory is short, parked requests that
// hold it are behind: they go on, since nobody else can give it back.
void Scheduler::start_waiting() {
  bool only_parked = false;
  size_t i = 0;
  while (i < waiting_.size()) {
    Sequence& sequence = *waiting_[i];
    if (sequence.is_paused || (only_parked && !sequence.is_admitted)) {
      ++i;
      continue;
    }
    bool is_started = start(sequence);
    while (!is_started && make_place(sequence)) is_started = start(sequence);
    if (is_started) {
      Sequence::insert(Sequence::take(sequence, waiting_), running_);
      continue;
    }
    if (sequence.is_admitted || has_host_room(sequence)) return;
    only_parked = true;
    ++i;
  }
}

bool Scheduler::has_host_room(const Sequence& sequence) const {
  const KvDemand demand = demand_of(sequence.request, sequence.tokens, sequence.max_tokens(),
                                    sequence.num_lookahead_tokens);
  return std::any_of(kv_.begin(), kv_.end(),
                     [&](const KvManager* kv) { return kv->has_host_room(demand); });
}

bool Scheduler::start(Sequence& sequence) {
  return sequence.is_admitted ? start_parked(sequence) : start_new(sequence);
}

bool Scheduler::start_parked(Sequence& sequence) {
  if (num_running_on(sequence.rank) >= config_.max_running) return false;
  const bool is_back =
      kv_[sequence.rank]->cover(sequence.memory, sequence.num_reached_tokens(),
                                sequence.num_computed_tokens, sequence.num_known_tokens());
  num_resumes_ += is_back ? 1 : 0;
  return is_back;
}

bool Scheduler::start_new(Sequence& sequence) {
  const KvDemand demand = demand_of(sequence.request, sequence.tokens, sequence.max_tokens(),
                                    sequence.num_lookahead_tokens);
  const std::optional<int> rank = choose_rank(loads(demand));
  if (!rank.has_value()) return false;
  std::optional<SequenceMemory> memory = kv_[*rank]->admit(demand);
  DHS_CHECK(memory.has_value(), "rank ", *rank, " refuses request ", sequence.id.value);
  sequence.rank = *rank;
  sequence.memory = *std::move(memory);
  sequence.is_admitted = true;
  sequence.num_computed_tokens = sequence.memory.cached_tokens();
  sequence.usage.cached_prompt_tokens = sequence.num_computed_tokens;
  return true;
}

// ---- Preemption ---------------------------------------------------------------------------------

// Parks the last running request of lower priority, if that can help to start `sequence`.
bool Scheduler::make_place(const Sequence& sequence) {
  if (sequence.is_admitted) return make_place_on(sequence.rank, sequence);
  for (size_t rank = 0; rank < kv_.size(); ++rank) {
    if (make_place_on(static_cast<int>(rank), sequence)) return true;
  }
  return false;
}

bool Scheduler::make_place_on(int rank, const Sequence& sequence) {
  const std::vector<Sequence*> lower = lower_on(rank, sequence);
  if (lower.empty()) return false;
  std::vector<const SequenceMemory*> memories;
  memories.reserve(lower.size());
  for (const Sequence* other : lower) memories.push_back(&other->memory);
  const bool could_help =
      sequence.is_admitted
          ? kv_[rank]->could_cover(sequence.memory, sequence.num_reached_tokens(), memories)
          : kv_[rank]->could_admit(demand_of(sequence.request, sequence.tokens,
                                             sequence.max_tokens(), sequence.num_lookahead_tokens),
                                   memories);
  if (!could_help) return false;
  ++num_preemptions_;
  park(*lower.back());
  return true;
}

std::vector<Scheduler::Sequence*> Scheduler::lower_on(int rank, const Sequence& sequence) const {
  std::vector<Sequence*> lower;
  for (const auto& other : running_) {
    if (other->rank == rank && other->request.priority < sequence.request.priority) {
      lower.push_back(other.get());
    }
  }
  return lower;
}

}  // namespace dhs

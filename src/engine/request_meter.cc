#include "engine/request_meter.h"

namespace dhs {
namespace {

double seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

}  // namespace

void RequestMeter::on_tokens(RequestId request, absl::Time arrived, int64_t num_tokens,
                             absl::Time now) {
  if (num_tokens == 0) return;
  Progress& progress = progress_[request];
  MutexLock lock(mutex_);
  if (progress.num_tokens == 0) {
    progress.first = now;
    figures_.first_token.observe(seconds(now - arrived));
    const int64_t num_more = num_tokens - 1;
    if (num_more > 0) figures_.inter_token.observe(0, num_more);
  } else {
    const double each = seconds(now - progress.latest) / static_cast<double>(num_tokens);
    figures_.inter_token.observe(each, num_tokens);
  }
  progress.num_tokens += num_tokens;
  progress.latest = now;
}

void RequestMeter::on_finished(RequestId request, absl::Time arrived, const Finished& finished,
                               absl::Time now) {
  const auto found = progress_.find(request);
  const Progress progress = found == progress_.end() ? Progress() : found->second;
  if (found != progress_.end()) progress_.erase(found);
  const Usage& usage = finished.usage;
  MutexLock lock(mutex_);
  ++figures_.finished[static_cast<size_t>(finished.reason)];
  figures_.whole.observe(seconds(now - arrived));
  figures_.prompt_tokens.observe(static_cast<double>(usage.prompt_tokens));
  figures_.output_tokens.observe(static_cast<double>(usage.completion_tokens));
  if (usage.queued.has_value()) figures_.queue.observe(seconds(*usage.queued));
  if (progress.num_tokens > 1) {
    figures_.per_output_token.observe(seconds(progress.latest - progress.first) /
                                      static_cast<double>(progress.num_tokens - 1));
  }
}

RequestFigures RequestMeter::figures() const {
  MutexLock lock(mutex_);
  return figures_;
}

}  // namespace dhs

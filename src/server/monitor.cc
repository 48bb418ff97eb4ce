#include "dhisparse/monitor.h"

#include <utility>

#include "server/exposition.h"
#include "server/http_server.h"

namespace dhs {
namespace {

class HttpMonitor final : public Monitor {
 public:
  explicit HttpMonitor(std::string version) : version_(std::move(version)) {}

  absl::Status start(const std::string& listen) {
    auto http = start_http_server(listen, [this](std::string_view path) { return answer(path); });
    if (!http.ok()) {
      return absl::Status(http.status().code(),
                          absl::StrCat("server.metrics: ", http.status().message()));
    }
    http_ = *std::move(http);
    return absl::OkStatus();
  }

  const std::string& address() const override { return http_->address(); }

  void set_phase(Phase phase) override {
    MutexLock lock(mutex_);
    phase_ = phase;
  }

  void watch(const Engine* engine, const ConfigReloader* reloader) override {
    MutexLock lock(mutex_);
    engine_ = engine;
    reloader_ = reloader;
  }

 private:
  HttpAnswer answer(std::string_view path) const {
    if (path == "/healthz") return {.body = "alive\n"};
    if (path == "/readyz") return readiness();
    if (path == "/metrics") return metrics();
    return {.status = 404, .body = "here are /metrics, /healthz and /readyz\n"};
  }

  // Empty: ready.
  std::string why_not_ready() const DHS_REQUIRES(mutex_) {
    switch (phase_) {
      case Phase::kLoading:
        return "the model is loading";
      case Phase::kDraining:
        return "draining";
      case Phase::kServing:
        break;
    }
    if (engine_ == nullptr) return "there is no engine";
    return engine_->state().failure;
  }

  HttpAnswer readiness() const {
    MutexLock lock(mutex_);
    const std::string why = why_not_ready();
    if (why.empty()) return {.body = "ready\n"};
    return {.status = 503, .body = absl::StrCat("not ready: ", why, "\n")};
  }

  // The lock keeps what is watched alive; the engine never takes it.
  HttpAnswer metrics() const {
    Exposition all{.version = version_};
    {
      MutexLock lock(mutex_);
      all.is_ready = why_not_ready().empty();
      if (engine_ != nullptr) all.engine = engine_->state();
      if (reloader_ != nullptr) all.reloads = reloader_->counts();
    }
    return {.content_type = kExpositionContentType, .body = exposition_text(all)};
  }

  const std::string version_;
  mutable Mutex mutex_;
  Phase phase_ DHS_GUARDED_BY(mutex_) = Phase::kLoading;
  const Engine* engine_ DHS_GUARDED_BY(mutex_) = nullptr;
  const ConfigReloader* reloader_ DHS_GUARDED_BY(mutex_) = nullptr;
  std::unique_ptr<HttpServer> http_;  // goes first: its threads call answer()
};

}  // namespace

absl::StatusOr<std::unique_ptr<Monitor>> start_monitor(const std::string& listen,
                                                       const std::string& version) {
  auto monitor = std::make_unique<HttpMonitor>(version);
  DHS_RETURN_IF_ERROR(monitor->start(listen));
  return monitor;
}

}  // namespace dhs

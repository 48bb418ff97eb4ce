#include "dhisparse/server.h"

#include <absl/time/clock.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/server_builder_option.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>
#include <vector>

#include "server/admin_service.h"
#include "server/generation_service.h"

namespace dhs {
namespace {

constexpr auto kAbortGrace = absl::Seconds(10);
constexpr int kMinPingIntervalMs = 10'000;  // gateways ping idle connections every 30 s
constexpr int kKeepaliveMs = 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;

// The reflection library registers itself for every server of the process once it is linked; this
// makes it a choice of each server.
class ReflectionOption final : public grpc::ServerBuilderOption {
 public:
  explicit ReflectionOption(bool enabled) : enabled_(enabled) {}

  void UpdateArguments(grpc::ChannelArguments* /*args*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    auto plugin = std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>();
    const std::string name = plugin->name();
    std::erase_if(*plugins, [&](const auto& other) { return other->name() == name; });
    if (enabled_) plugins->push_back(std::move(plugin));
  }

 private:
  const bool enabled_;
};

// The libraries print to stderr in formats of their own; what they have to say goes to our log.
// Protobuf only ever complains of what a client sent, and the client gets a status for that.
void route_library_logs() {
  gpr_set_log_function([](gpr_log_func_args* args) {
    if (args->severity == GPR_LOG_SEVERITY_ERROR) log_warning("grpc: ", args->message);
  });
  google::protobuf::SetLogHandler(
      [](google::protobuf::LogLevel, const char*, int, const std::string& message) {
        log_at(LogLevel::kDebug, "protobuf: " + message);
      });
}

void set_transport_limits(const LimitsConfig& limits, grpc::ServerBuilder& builder) {
  const int64_t max_int = std::numeric_limits<int>::max();
  builder.SetMaxReceiveMessageSize(static_cast<int>(std::min(limits.max_message_bytes, max_int)));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_streams_per_connection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE,
                             static_cast<int>(limits.max_metadata_bytes));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // Two servers that share one port without knowing would each get half of the requests.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

class GrpcServer final : public Server {
 public:
  GrpcServer(const LimitsConfig& limits, Engine& engine, const Tokenizer& tokenizer,
             ConfigReloader* reloader)
      : serving_(limits, engine, tokenizer, reloader), generation_(serving_), admin_(serving_) {}

  ~GrpcServer() override { drain(absl::ZeroDuration()); }

  absl::Status start(const ServerConfig& config) {
    route_library_logs();
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(config.listen, grpc::InsecureServerCredentials(), &port);
    set_transport_limits(serving_.limits, builder);
    builder.SetOption(std::make_unique<ReflectionOption>(config.reflection));
    builder.RegisterService(&generation_);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(absl::StrCat(
          "server.listen: cannot listen on ", config.listen,
          " (the port is in use, the address is not of this machine, or it is not permitted); "
          "choose another address or port"));
    }
    address_ = absl::StrCat(config.listen.substr(0, config.listen.rfind(':')), ":", port);
    server_->GetHealthCheckService()->SetServingStatus(wire::Generation::service_full_name(), true);
    serving_.engine.watch_failure(
        [this](const absl::Status&) { server_->GetHealthCheckService()->SetServingStatus(false); });
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void drain(absl::Duration timeout) override {
    if (server_ == nullptr || drained_.exchange(true)) return;
    serving_.engine.watch_failure(nullptr);
    server_->GetHealthCheckService()->SetServingStatus(false);
    serving_.calls.close();
    if (!serving_.calls.wait_until_empty(timeout)) {
      log_warning("drain: ending ", serving_.calls.size(), " requests after ",
                  absl::FormatDuration(timeout));
      serving_.calls.abort_all(absl::UnavailableError(
          absl::StrCat("the server stopped before the request ended (server.drain_timeout is ",
                       absl::FormatDuration(timeout), "); send it to another one")));
      serving_.calls.wait_until_empty(kAbortGrace);
    }
    server_->Shutdown(absl::ToChronoTime(absl::Now() + absl::Seconds(1)));
    server_->Wait();
  }

 private:
  ServingContext serving_;
  GenerationService generation_;
  AdminService admin_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<bool> drained_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> start_server(const ServerConfig& config,
                                                     const LimitsConfig& limits, Engine& engine,
                                                     const Tokenizer& tokenizer,
                                                     ConfigReloader* reloader) {
  auto server = std::make_unique<GrpcServer>(limits, engine, tokenizer, reloader);
  DHS_RETURN_IF_ERROR(server->start(config));
  return server;
}

}  // namespace dhs

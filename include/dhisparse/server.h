// server: the gRPC services in front of an engine. gRPC and protobuf stay behind this header.
//
// Serves dhisparse.v1.Generation and .Admin (proto/dhisparse/v1), grpc.health.v1 and, by
// configuration, reflection, all in clear text on one port. Every limit is checked before the
// engine sees a request: nothing a client sends stops the process.
//
// Health names: "" (the process) and "dhisparse.v1.Generation" (ready for requests). Both are
// SERVING once start_server has returned, and NOT_SERVING from the first moment of drain() and once
// the engine can run no step any more.
#pragma once

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <memory>
#include <string>

#include "dhisparse/config.h"
#include "dhisparse/config_reloader.h"
#include "dhisparse/engine.h"
#include "dhisparse/tokenizer.h"

namespace dhs {

class Server {
 public:
  // Drains with a timeout of zero, unless it was drained before.
  virtual ~Server() = default;

  // Where it listens, with the real port when the configured one was 0: "127.0.0.1:50051".
  virtual const std::string& address() const = 0;

  // In this order: health NOT_SERVING; new Generate calls get UNAVAILABLE; waits at most `timeout`
  // for the running ones; ends the rest with UNAVAILABLE; closes the port. Returns when no call is
  // left, so it needs the engine alive: drain the server first, then the engine. Any thread, once;
  // later calls return at once.
  virtual void drain(absl::Duration timeout) = 0;
};

// Binds and serves until drained. `engine`, `tokenizer` and `reloader` must outlive the server;
// without a reloader (null) Admin.Reload is UNIMPLEMENTED.
// UNAVAILABLE: the address cannot be bound (in use, not local, not permitted).
absl::StatusOr<std::unique_ptr<Server>> start_server(const ServerConfig& config,
                                                     const LimitsConfig& limits, Engine& engine,
                                                     const Tokenizer& tokenizer,
                                                     ConfigReloader* reloader);

}  // namespace dhs

// A small HTTP server for GET and HEAD. civetweb stays in http_server.cc.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace dhs {

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  // From a path without its query. Called on several threads at once.
  using Handler = std::function<HttpAnswer(std::string_view path)>;

  // Closes the port, which takes the library up to two seconds; no handler runs afterwards.
  virtual ~HttpServer() = default;

  virtual const std::string& address() const = 0;  // with the real port
};

// UNAVAILABLE: `listen` (host:port) cannot be bound; the message does not name its key.
absl::StatusOr<std::unique_ptr<HttpServer>> start_http_server(const std::string& listen,
                                                              HttpServer::Handler handler);

}  // namespace dhs

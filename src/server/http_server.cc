#include "server/http_server.h"

#include <civetweb.h>

#include <utility>

#include "dhisparse/base.h"

namespace dhs {
namespace {

// Two that scrape at once, and probes, need no more; a peer that sends nothing is cut off.
constexpr char kNumThreads[] = "4";
constexpr char kRequestTimeoutMs[] = "5000";
constexpr char kKeepAlive[] = "no";

class CivetHttpServer final : public HttpServer {
 public:
  explicit CivetHttpServer(Handler handler) : handler_(std::move(handler)) { mg_init_library(0); }

  ~CivetHttpServer() override {
    if (context_ != nullptr) mg_stop(context_);
    mg_exit_library();
  }

  absl::Status start(const std::string& listen) {
    const char* options[] = {"listening_ports",   listen.c_str(),       "num_threads",
                             kNumThreads,         "request_timeout_ms", kRequestTimeoutMs,
                             "enable_keep_alive", kKeepAlive,           nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = &CivetHttpServer::on_request;
    callbacks.log_message = [](const mg_connection*, const char* message) {
      log_at(LogLevel::kDebug, absl::StrCat("http: ", message));
      return 1;
    };
    context_ = mg_start(&callbacks, this, options);
    mg_server_port port{};
    if (context_ == nullptr || mg_get_server_ports(context_, 1, &port) != 1) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", listen,
                       " (the port is in use, the address is not of this machine, or it is not "
                       "permitted); choose another address or port"));
    }
    address_ = absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port.port);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

 private:
  // Returns the status that was sent: then the library sends nothing itself.
  static int on_request(mg_connection* connection) {
    const mg_request_info& request = *mg_get_request_info(connection);
    const auto& server = *static_cast<const CivetHttpServer*>(request.user_data);
    const std::string_view method = request.request_method;
    HttpAnswer answer{.status = 405, .body = "only GET and HEAD are served here\n"};
    if (method == "GET" || method == "HEAD") answer = server.handler_(request.local_uri);
    std::string text = absl::StrCat(
        "HTTP/1.1 ", answer.status, " ", mg_get_response_code_text(connection, answer.status),
        "\r\nContent-Type: ", answer.content_type, "\r\nContent-Length: ", answer.body.size(),
        "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n");
    if (method != "HEAD") text += answer.body;
    mg_write(connection, text.data(), text.size());
    return answer.status;
  }

  const Handler handler_;
  mg_context* context_ = nullptr;
  std::string address_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> start_http_server(const std::string& listen,
                                                              HttpServer::Handler handler) {
  auto server = std::make_unique<CivetHttpServer>(std::move(handler));
  DHS_RETURN_IF_ERROR(server->start(listen));
  return server;
}

}  // namespace dhs

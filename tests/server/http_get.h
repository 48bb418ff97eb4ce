// One HTTP request to an address of this machine, for tests.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace dhs {

struct HttpResponse {
  int status = 0;  // 0: nobody answered
  std::string head;
  std::string body;
};

// address: "127.0.0.1:9400".
inline HttpResponse http_request(const std::string& method, const std::string& address,
                                 const std::string& path) {
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  HttpResponse response;
  std::string all;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string text = method + " " + path + " HTTP/1.1\r\nHost: " + address + "\r\n\r\n";
    send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    char buffer[1 << 14];
    for (ssize_t n = 0; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) all.append(buffer, n);
  }
  close(fd);
  const size_t end = all.find("\r\n\r\n");
  if (end == std::string::npos) return response;
  response.head = all.substr(0, end);
  response.body = all.substr(end + 4);
  response.status = std::atoi(all.c_str() + all.find(' '));
  return response;
}

inline HttpResponse http_get(const std::string& address, const std::string& path) {
  return http_request("GET", address, path);
}

}  // namespace dhs

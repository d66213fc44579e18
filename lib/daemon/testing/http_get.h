// One HTTP request to a server on this machine, for tests: what came back, byte for byte, until the server closed.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace fusionllm::daemon {

struct HttpResponse {
  int code = 0;  // 0: no answer
  std::string head, body;
};

// A socket over which `text` has gone to `address`, 127.0.0.1:PORT or [::1]:PORT; reads on it end after a minute. -1: nothing listens.
inline int OpenHttp(const std::string& address, const std::string& text) {
  const size_t colon = address.rfind(':');
  const uint16_t port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  const bool six = address[0] == '[';
  sockaddr_in in = {.sin_family = AF_INET, .sin_port = port, .sin_addr = {}, .sin_zero = {}};
  sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = port, .sin6_flowinfo = 0, .sin6_addr = {}, .sin6_scope_id = 0};
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &in.sin_addr);
  if (six) inet_pton(AF_INET6, address.substr(1, colon - 2).c_str(), &in6.sin6_addr);
  const int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit = {.tv_sec = 60, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const auto* const peer = six ? reinterpret_cast<const sockaddr*>(&in6) : reinterpret_cast<const sockaddr*>(&in);
  if (connect(fd, peer, six ? sizeof in6 : sizeof in) == 0 &&
      send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) {
    return fd;
  }
  close(fd);
  return -1;
}

// `address`: 127.0.0.1:PORT.
inline HttpResponse SendHttp(const std::string& address, const std::string& text) {
  const int fd = OpenHttp(address, text);
  std::string answer;
  if (fd >= 0) {
    char buffer[1 << 16];
    for (ssize_t got; (got = recv(fd, buffer, sizeof buffer, 0)) > 0;) answer.append(buffer, static_cast<size_t>(got));
    close(fd);
  }
  HttpResponse response;
  const size_t end = answer.find("\r\n\r\n");
  if (end == std::string::npos || answer.rfind("HTTP/1.1 ", 0) != 0) return response;
  response.code = std::atoi(answer.c_str() + 9);
  response.head = answer.substr(0, end);
  response.body = answer.substr(end + 4);
  return response;
}

inline HttpResponse HttpGet(const std::string& address, const std::string& path) {
  return SendHttp(address, "GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\n\r\n");
}

}  // namespace fusionllm::daemon

// A DNS server on loopback that knows one name, after it has said a number of times that there is none. For gRPC's resolver (c-ares), which
// hears of it by the address.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"

namespace fusionllm::transport::testing {

class NameServer {
 public:
  // Says `refusals` times that there is no such name (NXDOMAIN), then 127.0.0.1.
  explicit NameServer(int refusals) : refusals_(refusals), socket_(socket(AF_INET, SOCK_DGRAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address_), sizeof address_), 0);
    socklen_t length = sizeof address_;
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &length), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~NameServer() {
    over_ = true;
    // A datagram of no bytes wakes recvfrom.
    sendto(socket_, nullptr, 0, 0, reinterpret_cast<const sockaddr*>(&address_), sizeof address_);
    thread_.join();
    close(socket_);
  }
  NameServer(const NameServer&) = delete;
  NameServer& operator=(const NameServer&) = delete;

  // What a channel is made for: a port of the machine that this server's answers lead to.
  std::string Target(int port) const { return absl::StrCat("dns://127.0.0.1:", ntohs(address_.sin_port), "/late.fusionllm.test:", port); }
  int asked() const { return asked_; }

 private:
  static constexpr size_t kHeader = 12;
  static constexpr char kA = 1;  // the type of a question for an IPv4 address

  void Serve() {
    char question[512];
    sockaddr_in from = {};
    while (true) {
      socklen_t length = sizeof from;
      const ssize_t size = recvfrom(socket_, question, sizeof question, 0, reinterpret_cast<sockaddr*>(&from), &length);
      if (over_) return;
      if (size <= static_cast<ssize_t>(kHeader)) continue;
      const std::string answer = Answer({question, static_cast<size_t>(size)});
      sendto(socket_, answer.data(), answer.size(), 0, reinterpret_cast<const sockaddr*>(&from), length);
    }
  }
  static std::string Bytes(std::initializer_list<uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }
  // RFC 1035, section 4: the question comes back, behind a header of our own, and an address behind it.
  std::string Answer(std::string_view question) {
    const size_t end = question.find('\0', kHeader) + 5;  // of the name, and of type and class behind it
    if (end > question.size()) return "";
    const bool address = question[end - 3] == kA;
    const bool known = asked_ >= refusals_;
    if (address) ++asked_;
    const std::string id(question.substr(0, 2)), asked(question.substr(kHeader, end - kHeader));
    if (!known) return id + Bytes({0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0}) + asked;
    if (!address) return id + Bytes({0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}) + asked;
    return id + Bytes({0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0}) + asked + Bytes({0xc0, kHeader, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 0, 0, 1});
  }

  const int refusals_;
  const int socket_;
  sockaddr_in address_ = {};
  std::atomic<bool> over_ = false;
  std::atomic<int> asked_ = 0;
  std::thread thread_;
};

}  // namespace fusionllm::transport::testing

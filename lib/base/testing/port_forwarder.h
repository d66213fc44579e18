// A forwarded port, as a router, a node port or a load balancer is one: takes TCP connections on a free port of the loopback and passes
// their bytes on to another port there, both ways. Header-only. Only for tests: a failure to listen ends the process.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <string>
#include <thread>

#include "lib/base/mutex.h"

namespace fusionllm::base {

class PortForwarder {
 public:
  PortForwarder() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_, 64) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      std::perror("PortForwarder");
      std::abort();
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~PortForwarder() {
    closing_ = true;
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close(listener_);
    for (Connection& connection : connections_) {
      shutdown(connection.inner, SHUT_RDWR);
      shutdown(connection.outer, SHUT_RDWR);
    }
    for (Connection& connection : connections_) {
      connection.in.join();
      connection.out.join();
      close(connection.inner);
      close(connection.outer);
    }
  }
  PortForwarder(const PortForwarder&) = delete;
  PortForwarder& operator=(const PortForwarder&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Where connections lead from now on; until then they are closed at once.
  void To(int port) { target_ = port; }
  // Until somebody has dialled the port; false when no one does.
  bool WaitForConnection(std::chrono::seconds timeout) {
    base::UniqueLock lock(mutex_);
    return news_.wait_for(lock, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return dialled_; });
  }
  int64_t bytes() const { return bytes_; }  // both ways

 private:
  struct Connection {
    int outer = -1, inner = -1;
    std::thread in, out;
  };

  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Accept() {
    while (true) {
      const int outer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (outer < 0) {
        if (closing_) return;
        continue;
      }
      {
        const base::MutexLock lock(mutex_);
        dialled_ = true;
        news_.notify_all();
      }
      const int inner = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in target = Loopback(target_);
      if (target_ == 0 || connect(inner, reinterpret_cast<sockaddr*>(&target), sizeof(target)) != 0) {
        close(inner);
        close(outer);
        continue;
      }
      Connection& connection = connections_.emplace_back();
      connection.outer = outer;
      connection.inner = inner;
      connection.in = std::thread([this, outer, inner] { Copy(outer, inner); });
      connection.out = std::thread([this, outer, inner] { Copy(inner, outer); });
    }
  }

  void Copy(int from, int to) {
    std::array<char, 65536> buffer;
    while (true) {
      const ssize_t got = recv(from, buffer.data(), buffer.size(), 0);
      if (got <= 0) break;
      bytes_ += got;
      ssize_t sent = 0;
      while (sent < got) {
        const ssize_t n = send(to, buffer.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
        if (n <= 0) break;
        sent += n;
      }
      if (sent < got) break;
    }
    shutdown(from, SHUT_RD);
    shutdown(to, SHUT_WR);
  }

  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> target_ = 0;
  std::atomic<int64_t> bytes_ = 0;
  std::atomic<bool> closing_ = false;
  base::Mutex mutex_;
  std::condition_variable news_;
  bool dialled_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<Connection> connections_;  // the acceptor's while it lives
  std::thread acceptor_;
};

}  // namespace fusionllm::base

// A server on a free port of this machine that does with its connections what a test says, byte by byte: what an orderly HTTP library
// would never do. In plain or, given a certificate, in TLS. Each connection has a thread of its own, which runs the handler; the destructor
// breaks what is open and waits for the handlers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/base/mutex.h"

namespace fusionllm::kube::testing {

// One connection, used by its handler's thread alone.
class RawConnection {
 public:
  virtual ~RawConnection() = default;
  // Head and body (by Content-Length) of the next request; empty when the client is gone.
  std::string ReadRequest();
  // What is there, as soon as there is anything: of protocols that are not HTTP. Empty when the client is gone.
  std::string ReadBytes();
  // All of it, or false.
  bool Write(absl::string_view bytes);
  // A whole answer with a Content-Length.
  bool Answer(int code, absl::string_view body, absl::string_view headers = "");
  // Blocks until the client hangs up, or the server is destroyed.
  void WaitForClose();
  // The subject's CN of the client's certificate; empty if it gave none.
  virtual std::string PeerName() const { return ""; }

 protected:
  virtual long Read(char* buffer, size_t size) = 0;
  virtual long WriteSome(const char* bytes, size_t size) = 0;

 private:
  std::string buffer_;
};

struct RawServerTls {
  std::string certificate_pem;
  std::string key_pem;
  std::string client_ca_pem;  // unless empty, clients must have a certificate of it
};

class RawServer {
 public:
  using Handler = std::function<void(RawConnection&)>;
  explicit RawServer(Handler handler) : RawServer(std::move(handler), RawServerTls()) {}
  RawServer(Handler handler, const RawServerTls& tls, bool ipv6 = false);
  ~RawServer();

  // Whether this machine has the address ::1.
  static bool HasIpv6();

  int port() const { return port_; }
  std::string Url() const;
  int connections() const { return connections_; }  // accepted so far
  // What the last client that spoke TLS could speak above it (ALPN), in its order. None is taken: HTTP/1.1, whatever it says.
  std::vector<std::string> offered_protocols() const;

 private:
  void Accept();
  void Serve(int socket);
  // Those whose handlers have returned. A thread that is not joined keeps its stack.
  void JoinEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Handler handler_;
  const bool ipv6_;
  void* tls_ = nullptr;  // SSL_CTX
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> connections_ = 0;
  mutable base::Mutex mutex_;
  std::vector<std::string> offered_protocols_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<int> sockets_ ABSL_GUARDED_BY(mutex_);  // of handlers that run
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread::id> ended_ ABSL_GUARDED_BY(mutex_);
  std::thread accepting_;
};

}  // namespace fusionllm::kube::testing

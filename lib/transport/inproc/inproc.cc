#include "lib/transport/inproc/inproc.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/mutex.h"

namespace fusionllm::transport {
namespace {

constexpr size_t kPipeBytesMax = 4u << 20;

// One direction of a stream.
struct Pipe {
  std::deque<Frame> frames;
  size_t bytes = 0;
  bool closed = false;
};

// Both directions, shared by the two ends.
struct Connection {
  base::Mutex mu;
  std::condition_variable changed;
  Pipe to_server ABSL_GUARDED_BY(mu), to_client ABSL_GUARDED_BY(mu);
  bool cancelled ABSL_GUARDED_BY(mu) = false;
  bool server_done ABSL_GUARDED_BY(mu) = false;
  absl::Status result ABSL_GUARDED_BY(mu);  // what the server ended the stream with
};

class InprocStream : public FrameStream {
 public:
  InprocStream(std::shared_ptr<Connection> connection, bool client)
      : connection_(std::move(connection)),
        in_(client ? connection_->to_client : connection_->to_server),
        out_(client ? connection_->to_server : connection_->to_client),
        client_(client) {}
  ~InprocStream() override { InprocStream::Cancel(); }

  bool Write(const Frame& frame) override {
    base::UniqueLock lock(connection_->mu);
    connection_->changed.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection_->mu) { return Ended() || out_.bytes < kPipeBytesMax; });
    if (Ended() || out_.closed) return false;
    out_.bytes += frame.wire_bytes();
    out_.frames.push_back(frame);
    connection_->changed.notify_all();
    return true;
  }

  bool Read(Frame* frame) override {
    base::UniqueLock lock(connection_->mu);
    connection_->changed.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection_->mu) {
      return connection_->cancelled || !in_.frames.empty() || in_.closed || connection_->server_done;
    });
    if (connection_->cancelled || in_.frames.empty()) return false;
    *frame = std::move(in_.frames.front());
    in_.frames.pop_front();
    in_.bytes -= frame->wire_bytes();
    connection_->changed.notify_all();
    return true;
  }

  void CloseWrites() override {
    base::MutexLock lock(connection_->mu);
    out_.closed = true;
    connection_->changed.notify_all();
  }

  void Cancel() override {
    base::MutexLock lock(connection_->mu);
    if (!connection_->server_done) connection_->cancelled = true;
    connection_->changed.notify_all();
  }

  absl::Status Finish() override {
    base::UniqueLock lock(connection_->mu);
    if (!client_) return connection_->cancelled ? absl::CancelledError("stream cancelled") : absl::OkStatus();
    connection_->changed.wait(
        lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection_->mu) { return connection_->cancelled || connection_->server_done; });
    return connection_->server_done ? connection_->result : absl::CancelledError("stream cancelled");
  }

 private:
  bool Ended() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection_->mu) { return connection_->cancelled || connection_->server_done; }

  std::shared_ptr<Connection> connection_;
  Pipe& in_;
  Pipe& out_;
  const bool client_;
};

// The place of an endpoint in the network. It outlives the endpoint; `users` are threads in Accept().
struct Port {
  base::Mutex mu;
  std::condition_variable changed;
  StreamEndpoint* endpoint ABSL_GUARDED_BY(mu) = nullptr;
  int users ABSL_GUARDED_BY(mu) = 0;
};

absl::Status AcceptAt(Port& port, FrameStream& stream) {
  StreamEndpoint* endpoint;
  {
    base::MutexLock lock(port.mu);
    endpoint = port.endpoint;
    if (endpoint == nullptr) return absl::UnavailableError("the endpoint has closed");
    ++port.users;
  }
  absl::Status status = endpoint->Accept(stream);
  base::MutexLock lock(port.mu);
  --port.users;
  port.changed.notify_all();
  return status;
}

}  // namespace

struct InprocNetwork::State {
  struct Server {
    std::thread thread;
    std::shared_ptr<Connection> connection;
  };
  base::Mutex mu;
  std::map<std::string, std::shared_ptr<Port>, std::less<>> ports ABSL_GUARDED_BY(mu);
  std::vector<Server> servers ABSL_GUARDED_BY(mu);

  ~State() {
    for (Server& server : servers) server.thread.join();
  }

  std::unique_ptr<FrameStream> Connect(std::shared_ptr<Port> port) {
    auto connection = std::make_shared<Connection>();
    base::MutexLock lock(mu);
    std::erase_if(servers, [](Server& server) {
      {
        base::MutexLock done(server.connection->mu);
        if (!server.connection->server_done) return false;
      }
      server.thread.join();
      return true;
    });
    std::thread thread([connection, port] {
      InprocStream stream(connection, false);
      absl::Status status = AcceptAt(*port, stream);
      base::MutexLock done(connection->mu);
      connection->result = std::move(status);
      connection->server_done = true;
      connection->changed.notify_all();
    });
    servers.push_back({std::move(thread), connection});
    return std::make_unique<InprocStream>(std::move(connection), true);
  }
};

namespace {

class InprocDialer : public Dialer {
 public:
  explicit InprocDialer(std::shared_ptr<InprocNetwork::State> state) : state_(std::move(state)) {}

  // Any name: its owner may appear later.
  absl::Status CanReach(absl::string_view) const override { return absl::OkStatus(); }

  absl::StatusOr<std::unique_ptr<FrameStream>> Dial(absl::string_view peer) override {
    std::shared_ptr<Port> port;
    {
      base::MutexLock lock(state_->mu);
      const auto found = state_->ports.find(std::string(peer));
      if (found == state_->ports.end()) return absl::UnavailableError(absl::StrCat("no endpoint is called ", std::string(peer)));
      port = found->second;
    }
    return state_->Connect(std::move(port));
  }

 private:
  std::shared_ptr<InprocNetwork::State> state_;
};

class InprocEndpoint : public StreamEndpoint {
 public:
  InprocEndpoint(EndpointOptions options, std::shared_ptr<InprocNetwork::State> state)
      : StreamEndpoint(std::move(options), std::make_unique<InprocDialer>(state)), port_(std::make_shared<Port>()) {
    port_->endpoint = this;
    base::MutexLock lock(state->mu);
    state->ports[std::string(name())] = port_;
  }
  ~InprocEndpoint() override { InprocEndpoint::Close(); }

  void Close() override {
    StreamEndpoint::Close();
    base::UniqueLock lock(port_->mu);
    port_->endpoint = nullptr;
    port_->changed.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(port_->mu) { return port_->users == 0; });
  }

 private:
  std::shared_ptr<Port> port_;
};

}  // namespace

InprocNetwork::InprocNetwork() : state_(std::make_shared<State>()) {}
InprocNetwork::~InprocNetwork() = default;

std::unique_ptr<StreamEndpoint> InprocNetwork::MakeEndpoint(EndpointOptions options) {
  return std::make_unique<InprocEndpoint>(std::move(options), state_);
}

}  // namespace fusionllm::transport

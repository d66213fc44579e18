#include "lib/transport/grpc/relay_endpoint.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <list>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lib/base/mutex.h"
#include "lib/transport/grpc/grpc_streams.h"
#include "lib/transport/grpc/reconnecting_channel.h"
#include "lib/transport/grpc/relay_names.h"
#include "lib/transport/retry.h"
#include "proto/fusionllm/v1/peer.grpc.pb.h"

namespace fusionllm::transport {
namespace {

constexpr std::chrono::milliseconds kBackoffMin{50}, kBackoffMax{1'000};

// The accepting end of a stream that is, to gRPC, a call of ours: it is finished by its owner after the END frame, not by the endpoint.
class AnsweringStream : public FrameStream {
 public:
  explicit AnsweringStream(CallStream& call) : call_(call) {}
  bool Write(const Frame& frame) override { return call_.Write(frame); }
  bool Read(Frame* frame) override { return call_.Read(frame); }
  void CloseWrites() override {}
  void Cancel() override { call_.Cancel(); }
  absl::Status Finish() override { return call_.read_error(); }

 private:
  CallStream& call_;
};

}  // namespace

// Both sides of what an endpoint does at a relay: it dials, and it answers.
class GrpcRelayEndpoint::Client : public Dialer {
 public:
  Client(std::string name, const RelayClientOptions& options)
      : name_(std::move(name)),
        channel_([options] { return MakeChannel(options.address, options.name, options.credentials, options.keepalive); }) {}

  absl::Status CanReach(absl::string_view) const override { return absl::OkStatus(); }  // the relay knows
  absl::StatusOr<std::unique_ptr<FrameStream>> Dial(absl::string_view peer) override {
    return std::make_unique<CallStream>(
        channel_.ChannelForDial(), kRelayDial,
        std::vector<std::pair<std::string, std::string>>{{kRelayCaller, name_}, {kRelayPeer, std::string(peer)}});
  }

  void Start(StreamEndpoint* endpoint) {
    endpoint_ = endpoint;
    listener_ = std::thread([this] { RunListener(); });
  }
  absl::Status WaitUntilListed(std::chrono::milliseconds timeout) {
    base::UniqueLock lock(mu_);
    changed_.wait_for(lock, timeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return listed_ || !Retryable(last_error_); });
    if (listed_) return absl::OkStatus();
    if (!Retryable(last_error_)) return last_error_;
    return absl::UnavailableError(
        absl::StrCat("the relay cannot be reached: ", last_error_.ok() ? "no answer" : std::string(last_error_.message())));
  }
  // After the endpoint has ended all streams.
  void Stop() {
    {
      base::MutexLock lock(mu_);
      stopping_ = true;
      if (listen_context_ != nullptr) listen_context_->TryCancel();
      changed_.notify_all();
    }
    if (listener_.joinable()) listener_.join();
    for (Answer& answer : answers_) answer.thread.join();
    answers_.clear();
  }

 private:
  struct Answer {
    std::thread thread;
    bool done = false;  // guarded by mu_
  };

  void RunListener() {
    auto backoff = kBackoffMin;
    while (true) {
      grpc::ClientContext context;
      context.AddMetadata(kRelayCaller, name_);
      {
        base::MutexLock lock(mu_);
        if (stopping_) return;
        listen_context_ = &context;
      }
      const auto stub = v1::Relay::NewStub(channel_.ChannelForDial());
      const auto reader = stub->Listen(&context, v1::ListenRequest());
      v1::Incoming incoming;
      while (reader->Read(&incoming)) {
        backoff = kBackoffMin;
        if (!incoming.call().empty()) {
          StartAnswer(incoming);
          continue;
        }
        base::MutexLock lock(mu_);
        listed_ = true;
        changed_.notify_all();
      }
      const absl::Status status = FromGrpc(reader->Finish());
      base::UniqueLock lock(mu_);
      listen_context_ = nullptr;
      last_error_ = status;
      changed_.notify_all();
      // A refusal may be lifted, so even that is tried again, slowly.
      changed_.wait_for(lock, Retryable(status) ? backoff : kBackoffMax, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_; });
      if (stopping_) return;
      backoff = std::min(backoff * 2, kBackoffMax);
    }
  }

  // answers_ belongs to the listener's thread while that runs.
  void StartAnswer(const v1::Incoming& incoming) {
    answers_.remove_if([this](Answer& answer) {
      {
        base::MutexLock lock(mu_);
        if (!answer.done) return false;
      }
      answer.thread.join();
      return true;
    });
    Answer& answer = answers_.emplace_back();
    answer.thread = std::thread([this, call = incoming.call(), from = incoming.from(), &answer] {
      RunAnswer(call, from);
      base::MutexLock lock(mu_);
      answer.done = true;
    });
  }

  // `from`: whom the relay knows the caller to be, whatever its handshake says.
  void RunAnswer(const std::string& call, const std::string& from) {
    CallStream stream(channel_.ChannelForDial(), kRelayAnswer, {{kRelayCaller, name_}, {kRelayCall, call}});
    AnsweringStream answering(stream);
    const absl::Status status = endpoint_->Accept(answering, {from});
    stream.Write(EndFrame(status));
    stream.CloseWrites();
    Frame rest;
    while (stream.Read(&rest)) {
    }
    stream.Finish().IgnoreError();
  }

  const std::string name_;
  ReconnectingChannel channel_;
  StreamEndpoint* endpoint_ = nullptr;
  base::Mutex mu_;
  std::condition_variable changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool listed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status last_error_ ABSL_GUARDED_BY(mu_);
  grpc::ClientContext* listen_context_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::list<Answer> answers_;
  std::thread listener_;
};

GrpcRelayEndpoint::GrpcRelayEndpoint(EndpointOptions options, std::shared_ptr<Client> client)
    : StreamEndpoint(std::move(options), client), client_(std::move(client)) {}

GrpcRelayEndpoint::~GrpcRelayEndpoint() { GrpcRelayEndpoint::Close(); }

absl::StatusOr<std::unique_ptr<GrpcRelayEndpoint>> GrpcRelayEndpoint::Create(EndpointOptions options, RelayClientOptions relay) {
  if (relay.credentials == nullptr) return absl::InvalidArgumentError("a relay endpoint needs credentials");
  auto client = std::make_shared<Client>(options.name, relay);
  std::unique_ptr<GrpcRelayEndpoint> endpoint(new GrpcRelayEndpoint(std::move(options), client));
  client->Start(endpoint.get());
  if (absl::Status status = client->WaitUntilListed(relay.connect_timeout); !status.ok()) return status;
  return endpoint;
}

void GrpcRelayEndpoint::Close() {
  StreamEndpoint::Close();
  client_->Stop();
}

}  // namespace fusionllm::transport

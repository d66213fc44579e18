// The broker's gRPC face: keeps the executors' streams, turns their messages into callbacks and carries orders down.
//
// One handler thread per stream reads, one writer thread per stream sends, so that a slow executor delays no other. Of each name one stream
// at a time is current: the newest process's newest. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"
#include "services/broker/executor_call_limiter.h"
#include "services/version.h"

namespace fusionllm::services {

struct ExecutorSessionsOptions {
  std::string token;  // what Hello's certificate stands for; Enroll wants it in clear
  std::string build_version;
  bool require_certificate = true;  // refuse streams whose peer has no certificate of the job's CA
  v1::Welcome welcome;
  std::optional<int64_t> attempt;  // of the job that this broker leads; executors that know theirs attend only the broker of the same
  // What only some executors get besides; may be empty. Blocks that executor's stream alone.
  std::function<void(const v1::Hello&, v1::Welcome&)> add_to_welcome;
  // From the beginning of a stream to its Hello, or to the end of its refusal; then it is ended.
  std::chrono::milliseconds hello_timeout{20'000};
  ExecutorCallLimiter* calls = nullptr;  // counts streams; null: they are not counted. Outlives the attendance
};

// Answers Enroll. Errors become the RPC's status.
using EnrollHandler = std::function<absl::StatusOr<v1::EnrollResponse>(const v1::EnrollRequest&)>;
// Answers Renew, for the certificate that an executor which attends has shown. Errors become the RPC's status.
using RenewHandler = std::function<absl::StatusOr<v1::RenewResponse>(const std::string& certificate_pem)>;

class ExecutorSessions final : public v1::Broker::Service {
 public:
  // Called from the streams' threads. Of one name the calls come one by one, in the order of what they tell: on_left of a stream never
  // after on_joined of the next, no message after either. They may block, but not on Enroll, Attend or one another.
  struct Handlers {
    // A stream was accepted. Later messages of this (name, incarnation) follow on the same thread.
    std::function<void(const v1::Hello&)> on_joined;
    // The handler acknowledges it when what it says is recorded.
    std::function<void(const std::string& name, uint64_t incarnation, const v1::ExecutorMessage&)> on_message;
    // The current stream ended; on_joined of the same incarnation may follow when it comes back. Not called for one that was replaced.
    std::function<void(const std::string& name, uint64_t incarnation, const std::string& why)> on_left;
    EnrollHandler on_enroll;
    RenewHandler on_renew;  // null: none is renewed here
  };

  ExecutorSessions(ExecutorSessionsOptions options, Handlers handlers);

  // Queues an order; false when the executor is not connected.
  bool Send(const std::string& name, v1::BrokerMessage message);
  // The executor need not repeat this report and those before it. Not sent to another incarnation, which counts its own.
  void Acknowledge(const std::string& name, uint64_t incarnation, uint64_t sequence);
  // Sends Shutdown to everybody and waits (bounded) until it is written. Executors end their streams when they read it; of those that do
  // not, the server's Shutdown does. New streams are refused from now on.
  void Shutdown(const std::string& reason, bool failed);
  // Whether an executor of this name is connected.
  bool IsConnected(const std::string& name);

  grpc::Status Attend(grpc::ServerContext* context, grpc::ServerReaderWriter<v1::BrokerMessage, v1::ExecutorMessage>* stream) override;
  grpc::Status Enroll(grpc::ServerContext* context, const v1::EnrollRequest* request, v1::EnrollResponse* response) override;
  grpc::Status Renew(grpc::ServerContext* context, const v1::RenewRequest* request, v1::RenewResponse* response) override;

 private:
  // One stream.
  struct Session {
    explicit Session(grpc::ServerContext* call) : context(call) {}
    uint64_t incarnation = 0;
    std::string certificate_pem;  // that it was opened with; empty: none
    // Held while a message is handed on, so that the one that replaces this stream can wait for it.
    base::Mutex delivery;
    bool current ABSL_GUARDED_BY(delivery) = true;

    base::Mutex mutex;  // of all below: the outgoing half
    std::condition_variable news;
    // One acknowledgement at most, and orders, which the loop of the run gives one after another.
    std::deque<v1::BrokerMessage> queue ABSL_GUARDED_BY(mutex);
    bool closed ABSL_GUARDED_BY(mutex) = false;
    bool drained ABSL_GUARDED_BY(mutex) = false;          // closed and everything written
    grpc::ServerContext* context ABSL_GUARDED_BY(mutex);  // null when the call has ended
  };
  // OK, and the first message of the stream in `first`, when the peer may attend. Errors: InvalidArgument, FailedPrecondition and
  // Unauthenticated, with a machine reason before the sentence.
  absl::Status ReceiveHello(const grpc::ServerContext& context, grpc::ServerReaderWriter<v1::BrokerMessage, v1::ExecutorMessage>& stream,
                            v1::ExecutorMessage& first) const;
  absl::Status ValidateHello(const grpc::ServerContext& context, const v1::ExecutorMessage& first) const;
  // Makes `session` the current one of its name. Errors: Unavailable: not now, or not here.
  absl::Status Join(const v1::Hello& hello, const std::shared_ptr<Session>& session);
  void Leave(const v1::Hello& hello, const std::shared_ptr<Session>& session, const std::string& why);
  std::shared_ptr<Session> SessionOf(const std::string& name);
  // Whether the current stream of that name was opened by the holder of this certificate, or the one that it renewed. Names are given out
  // again, each time for another key.
  bool OwnsSession(const std::string& name, const std::string& certificate_pem);
  static void Enqueue(Session& session, v1::BrokerMessage message);
  static void Close(Session& session);
  static void CloseReplaced(Session& session);
  static void CancelCall(Session& session);
  static void WriteQueue(Session& session, grpc::ServerReaderWriter<v1::BrokerMessage, v1::ExecutorMessage>& stream);

  const ExecutorSessionsOptions options_;
  const Handlers handlers_;
  // Orders joining and leaving, their handlers included. Taken before all other locks, and never by Send, which those that the handlers
  // wait for may call.
  base::Mutex registration_mutex_;
  base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);  // the current ones
  bool shutting_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace fusionllm::services

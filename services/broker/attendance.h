// The broker's gRPC face: keeps the executors' streams, turns their messages into callbacks and carries orders down.
//
// One handler thread per stream reads, one writer thread per stream sends, so that a slow executor delays nobody. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"
#include "services/version.h"

namespace fusionllm::services {

struct AttendanceOptions {
  std::string token;  // what Hello's certificate stands for; Enroll wants it in clear
  std::string build_version;
  bool require_certificate = true;  // refuse streams whose peer has no certificate of the job's CA
  v1::Welcome welcome;
};

// Answers Enroll. Errors become the RPC's status.
using EnrollHandler = std::function<absl::StatusOr<v1::EnrollResponse>(const v1::EnrollRequest&)>;

class Attendance final : public v1::Broker::Service {
 public:
  struct Handlers {
    // A stream was accepted. Later messages of this (name, incarnation) follow on the same thread.
    std::function<void(const v1::Hello&)> on_joined;
    // Whoever handles it acknowledges it when what it says is recorded.
    std::function<void(const std::string& name, const v1::ExecutorMessage&)> on_message;
    // The stream ended; on_joined of the same incarnation may follow when it comes back.
    std::function<void(const std::string& name, uint64_t incarnation, const std::string& why)> on_left;
    EnrollHandler on_enroll;
  };

  Attendance(AttendanceOptions options, Handlers handlers);

  // Queues an order; false when the executor is not connected.
  bool Send(const std::string& name, v1::BrokerMessage message);
  // The executor need not repeat this report and those before it.
  void Acknowledge(const std::string& name, uint64_t sequence);
  // Sends Shutdown to everybody, waits (bounded) until it is written, and ends all streams.
  void Shutdown(const std::string& reason, bool failed);
  // Whether an executor of this name is connected.
  bool IsAttending(const std::string& name);

  grpc::Status Attend(grpc::ServerContext* context, grpc::ServerReaderWriter<v1::BrokerMessage, v1::ExecutorMessage>* stream) override;
  grpc::Status Enroll(grpc::ServerContext* context, const v1::EnrollRequest* request, v1::EnrollResponse* response) override;

 private:
  // The outgoing half of one stream.
  struct Line {
    std::mutex mutex;
    std::condition_variable news;
    std::deque<v1::BrokerMessage> queue;
    bool closed = false;
    bool drained = false;  // closed and everything written
    grpc::ServerContext* context = nullptr;
    uint64_t incarnation = 0;
  };
  absl::Status Examine(const grpc::ServerContext& context, const v1::ExecutorMessage& first) const;
  static void Enqueue(Line& line, v1::BrokerMessage message);
  static void Close(Line& line);

  const AttendanceOptions options_;
  const Handlers handlers_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Line>> lines_;
  bool shutting_down_ = false;
};

}  // namespace fusionllm::services

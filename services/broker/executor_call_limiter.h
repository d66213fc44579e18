// How many calls one executor of a run may have open at the broker: each holds a thread there, of which there is one quota for all.
//
// An executor is a name in a certificate of the job's CA; its connections count together. What an honest executor has open at once, at
// most:
//
//   Attend                        2   a new stream while the end of the old one has not been noticed yet
//   PutShardFile, of its own      2   likewise
//   PutShardFile, recalled        4   files of its site that are asked for one by one, each for the one who waits for it, and as above
//   FetchTensors                  2
//   Relay: Listen                 2
//   Relay: Dial and Answer        4   for each other executor: one of each, and as above
//
// So kMaxOwnCalls = 16 and kMaxCallsPerOther = 4 leave room. The others are those whom this broker has seen, itself not counted: who has
// one certificate has no say in their number. With the 32 threads for each executor of main.cc several executors of ill will, not one, can
// use up the quota. AuthInterceptor (auth_interceptor.h) turns outsiders away before this; it cannot count, for gRPC does not tell it when
// a call ends.
//
// A call whose request has not come in whole has no thread yet and does not count. Thread-safe; does not block.
#pragma once

#include <grpcpp/server_context.h>

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/base/mutex.h"

namespace fusionllm::services {

class ExecutorCallLimiter {
 public:
  static constexpr int kMaxOwnCalls = 16;
  static constexpr int kMaxCallsPerOther = 4;

  // A call that is open until this goes; ExecutorCallLimiter may go before. Null: not counted.
  using Permit = std::shared_ptr<void>;

  // Errors: ResourceExhausted when the executor has as many open as it may.
  absl::StatusOr<Permit> Enter(const std::string& executor);
  // By the caller's certificate. Who has none is not counted: there is no TLS, or the handler turns it away.
  absl::StatusOr<Permit> Enter(const grpc::ServerContext& context);

 private:
  struct Open {
    base::Mutex mutex;
    std::map<std::string, int> calls ABSL_GUARDED_BY(mutex);  // by each executor that has been seen: at most one for each certificate
  };
  const std::shared_ptr<Open> open_ = std::make_shared<Open>();
};

}  // namespace fusionllm::services

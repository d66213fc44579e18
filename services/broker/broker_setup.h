// Everything a broker reads before it serves: job, topology, credentials, checkpoints, journal.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/broker/checkpoint_exchange.h"
#include "services/broker/checkpoint_mirrors.h"
#include "services/broker/enrollment.h"
#include "services/broker/executor_call_limiter.h"
#include "services/broker/executor_sessions.h"
#include "services/broker/run_loop.h"
#include "services/broker/shard_fetcher.h"
#include "services/broker/shared_folder.h"

namespace fusionllm::services {

struct BrokerFlags {
  std::string job_file, topology_file, output_directory, base_directory;
  std::string listen_address = "127.0.0.1:0";
  std::string scheduler_address;
  std::string tls_directory;  // empty: no TLS
  bool insecure = false;      // then also for other machines (CheckServedPlaintext)
  std::string profiles_file;
  std::vector<std::string> expected;
  std::vector<std::string> lost_executors;  // with resume_journal: executors that have ended
  double join_timeout_seconds = 0;
  int min_executors = 0;                  // > 0: wait without limit until so many have joined
  std::vector<std::string> data_devices;  // have the training data; empty: all have it
  double data_timeout_seconds = 0;        // broker::RunOptions::data_timeout_s
  double executor_timeout_seconds = 0;    // > 0: broker::RunOptions::executor_timeout_s, and waits_for_executors
  std::optional<int64_t> attempt;         // of the job; nothing: not known
  bool allow_join = false;                // enroll executors of other machines
  bool closed = false;                    // no executors come but those that are expected
  bool fresh = false;
  bool resume_journal = false;
  bool events_in_log = true;  // RunLoopOptions
};

struct BrokerSetup {
  std::string checkpoint_directory;  // empty: the job keeps none
  SharedFolder shared_folder;
  std::unique_ptr<ExecutorCallLimiter> calls = std::make_unique<ExecutorCallLimiter>();
  std::unique_ptr<ShardFetcher> shard_fetcher;
  std::unique_ptr<CheckpointExchange> exchange;
  std::unique_ptr<RunMetrics> run_metrics;
  std::unique_ptr<RunLoop> loop;
  std::unique_ptr<CheckpointMirrors> mirrors;  // its threads tell the loop: they end before that goes. Null: the job keeps no checkpoints
  ExecutorSessionsOptions sessions;
  std::function<absl::StatusOr<v1::EnrollResponse>(const v1::EnrollRequest&, const NameInUse&)> enroll;
  RenewHandler renew;                                                                     // null: no certificates are renewed here
  std::function<void(const std::string& name)> on_connected = [](const std::string&) {};  // called for every executor
  std::shared_ptr<grpc::ServerCredentials> credentials;
};

// Errors: InvalidArgument and NotFound for what the user gave, FailedPrecondition for a checkpoint or start of another model, for
// checkpoints that cannot be used and for one that is not there, or has seen more steps than the job, Unavailable for the machine.
// `registry` gets the metrics of the run and must outlive the setup.
absl::StatusOr<BrokerSetup> SetUp(const BrokerFlags& flags, metrics::Registry& registry);

}  // namespace fusionllm::services

// Turns the broker's orders into the life of a stage: measure, build, restore, train, stop.
//
// Orders arrive on the session's thread and are worked off by one worker thread, which is also the stage's thread; Abort and Stop act at
// once. Reports leave through `report`, from any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/job/topology.h"
#include "lib/kernels/backend.h"
#include "lib/workload/workload.h"
#include "services/executor/checkpoint_client.h"
#include "services/executor/checkpoint_io.h"
#include "services/executor/data_fetcher.h"
#include "services/executor/data_plane.h"
#include "services/executor/executor_metrics.h"
#include "services/executor/local_access.h"
#include "services/executor/shared_calibration.h"
#include "services/executor/site_shard_server.h"
#include "services/executor/stage_epoch.h"
#include "services/messages_fwd.h"

namespace fusionllm::services {

struct HostOptions {
  std::string name;
  std::string site;              // without a topology; empty: one of its own
  std::string site_checkpoints;  // a folder of the site that outlives this process and is shared by the site; empty: none
  bool spare = false;
  uint64_t incarnation = 0;
  std::optional<int64_t> attempt;  // of the job; nothing: not known
  std::string build_version;
  int threads = 0;                    // 0: the device's, or all cores
  int64_t memory_bytes = 0;           // 0: the device's, or what the machine has
  std::string device = "cpu";         // as chosen by kernels::ChooseDevice: "cpu" or "cuda:N"
  bool device_by_default = true;      // that one was not asked for: an emulated device is the CPU whatever there is
  bool allow_nondeterminism = false;  // kernels::BackendOptions::deterministic, not
  std::string device_description;
  int64_t device_memory_bytes = 0;  // 0: the machine's
  LocalAccess access;
  // Gets what this executor is at now ("measuring this machine"), on the worker's thread; may be empty.
  std::function<void(const std::string&)> on_phase;
};

class StageHost {
 public:
  using ReportFunction = std::function<void(v1::ExecutorMessage)>;
  // What is borrowed must outlive the host.
  StageHost(HostOptions options, DataPlane& data_plane, CheckpointClient& checkpoints, ExecutorMetrics& executor_metrics,
            ReportFunction report);
  ~StageHost();

  v1::Hello Hello() const;
  void OnMessage(const v1::BrokerMessage& message);
  // Ends the present stage and the worker; blocks.
  void Shutdown();

 private:
  void Work();
  void Phase(std::string phase);
  void Post(std::function<void()> task);
  absl::Status Welcome(const v1::Welcome& welcome);
  int64_t MemoryOfDevice() const;
  absl::StatusOr<std::string> BackendFor(const job::FusionJob& job) const;
  void Calibrate();
  absl::StatusOr<wire::DeviceProfile> MeasureMachine();
  void Probe(const v1::Probe& probe);
  void Assign(const v1::Assign& assign);
  absl::Status TakeMicroBatchSize(const v1::Assign& assign);
  void Start(uint32_t epoch);
  void Abort(uint32_t epoch, const std::string& reason);
  StageContext Setting(uint32_t epoch);
  absl::StatusOr<std::unique_ptr<workload::DatasetSource>> OpenData(uint32_t epoch);
  absl::StatusOr<std::unique_ptr<StageEpoch>> Build(const v1::Assign& assign);
  // Where memory is short, with what the plan says of it.
  absl::Status AnnotateOutOfMemory(const absl::Status& status, const StageEpoch& epoch) const;
  runtime::StageCallbacks CallbacksOf(StageEpoch& epoch);
  void ReportStep(StageEpoch& epoch, const runtime::StageStepTimes& times);

  const HostOptions options_;
  DataPlane& data_plane_;
  CheckpointClient& checkpoints_;
  ExecutorMetrics& executor_metrics_;
  const ReportFunction report_;
  std::string site_;  // the worker's, which writes it under mutex_

  // Set by Welcome, then constant; but micro-batches of a job that leaves their size to the planner have that of the plan last assigned.
  std::unique_ptr<workload::Workload> workload_;
  std::unique_ptr<workload::DatasetSource> source_;  // opened when a stage needs data
  std::unique_ptr<kernels::Backend> backend_;
  std::optional<StageRestorer> restorer_;
  std::string run_objects_;  // folder of the run for what comes from object stores; empty: another machine's
  Scratch scratch_;
  bool planner_chooses_size_ = false;
  std::string measure_lock_;  // of the machine; empty: another machine's
  SharedCalibration shared_calibration_{"", ""};
  absl::Status welcome_status_;
  bool welcomed_ = false;       // the worker's
  std::string phase_;           // likewise
  bool data_reported_ = false;  // likewise
  bool data_allowed_ = false;   // by options_.access
  double compute_scale_ = 1;
  bool emulate_ = false;
  int threads_ = 1;
  int64_t memory_bytes_ = 0;
  int64_t memory_at_join_ = 0;

  mutable base::Mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool shutting_down_ ABSL_GUARDED_BY(mutex_) = false;
  uint32_t aborted_epoch_ ABSL_GUARDED_BY(mutex_) = 0;             // it and all before are over
  std::shared_ptr<runtime::Inbox> inbox_ ABSL_GUARDED_BY(mutex_);  // of the present epoch, for Abort
  uint32_t inbox_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<runtime::CodecLimit> codec_limit_ ABSL_GUARDED_BY(mutex_);  // likewise, for LimitCodecs
  uint32_t running_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t started_epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // running, or ended as ordered
  int running_stage_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t last_step_ ABSL_GUARDED_BY(mutex_) = 0;
  std::stop_source fetching_ ABSL_GUARDED_BY(mutex_);  // of the epoch that is being built
  std::atomic<uint32_t> stop_requested_ = 0;           // the epoch to end; it and all before

  std::unique_ptr<StageEpoch> epoch_;  // worker thread only
  // Set by Welcome; null where no shards are kept in this site. The keeper goes first.
  std::unique_ptr<checkpoint::SiteStore> site_store_;
  std::unique_ptr<SiteShardServer> site_shard_server_;
  std::unique_ptr<ShardWriter> shards_;
  std::thread worker_;
};

}  // namespace fusionllm::services

// One plan epoch on an executor: the stage with what it stands on, how it is built and restored, and what is reported of it.
//
// Built and run on the stage's thread; what other threads may touch says so.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/collective/deferred_communicator.h"
#include "lib/kernels/backend.h"
#include "lib/plan/plan.h"
#include "lib/runtime/device_throttle.h"
#include "lib/runtime/stage_executor.h"
#include "lib/workload/workload.h"
#include "services/executor/checkpoint_io.h"
#include "services/executor/data_plane.h"
#include "services/executor/replica_channel.h"
#include "services/messages_fwd.h"

namespace fusionllm::services {

// Stages without placeholders read no data.
class EmptySource : public runtime::BatchSource {
 public:
  absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override;
};

// Passes on to the job's data and adds up how long that took. The stage's thread only.
class TimedSource : public runtime::BatchSource {
 public:
  void Wrap(runtime::BatchSource& source) { source_ = &source; }
  bool wraps() const { return source_ != nullptr; }
  // Since the last call; evaluation aside.
  double TakeSeconds() { return std::exchange(seconds_, 0); }
  std::optional<int64_t> EvaluationSamples() const override { return source_->EvaluationSamples(); }
  absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override;

 private:
  runtime::BatchSource* source_ = nullptr;
  double seconds_ = 0;
};

// The first peer whose link broke. The data plane records it from its own threads and may still be about to when the epoch is gone, so both
// share it. Thread-safe.
class FirstLostPeer {
 public:
  void Record(const std::string& peer) {
    const base::MutexLock lock(mutex_);
    if (peer_.empty()) peer_ = peer;
  }
  // Empty: none.
  std::string peer() const {
    const base::MutexLock lock(mutex_);
    return peer_;
  }

 private:
  mutable base::Mutex mutex_;
  std::string peer_ ABSL_GUARDED_BY(mutex_);
};

// Members are destroyed in reverse order: the executor before what it refers to.
struct StageEpoch {
  explicit StageEpoch(const v1::Assign& assign);
  ~StageEpoch();

  const uint32_t number;
  const int stage;
  const int stages;
  const int replica;
  const int replicas;
  const int64_t first_step;
  const std::shared_ptr<runtime::Inbox> inbox = std::make_shared<runtime::Inbox>();
  // Of all values, set from any thread.
  const std::shared_ptr<runtime::CodecLimit> codec_limit = std::make_shared<runtime::CodecLimit>();
  const opdag::Graph* graph = nullptr;  // of training
  std::vector<std::string> peers;       // by stage; then, where there are several, who runs this stage, by replica
  plan::Plan plan;
  EmptySource no_data;
  TimedSource data;
  std::unique_ptr<runtime::DeviceThrottle> throttle;
  std::unique_ptr<ReplicaChannel> channel;  // null where there is one replica, as is the group
  std::shared_ptr<collective::DeferredCommunicator> group;
  bool group_is_near = true;  // in one site
  std::unique_ptr<runtime::StageExecutor> executor;
  std::vector<transport::LinkStats> stats_before;  // by peer
  const std::shared_ptr<FirstLostPeer> loss = std::make_shared<FirstLostPeer>();
  // Stage thread only.
  std::vector<std::string> residuals;  // taken up from the checkpoint
  runtime::StepResult result;
  int64_t step_begin_ns = 0;
  std::vector<runtime::TraceSpan> spans;
  int64_t steps = 0;  // done; with their sums:
  double busy_seconds = 0;
  double lateness_seconds = 0;
};

// What stages of this executor are built from. Everything outlives the epoch.
struct StageContext {
  const std::string& name;
  const workload::Workload& workload;
  kernels::Backend& backend;
  DataPlane& data_plane;
  const StageRestorer& restorer;
  std::unique_ptr<workload::DatasetSource>& source;  // opened by the first stage that needs data:
  std::function<absl::StatusOr<std::unique_ptr<workload::DatasetSource>>()> open_data;
  int threads = 1;  // of the back end
  double compute_scale = 1;
  bool emulate = false;
  std::string measure_lock;  // file; held while emulated devices measure their ops
};

// Joins the epoch to the network and makes its executor, with parameters drawn from the seed. Blocks. Other replicas are not met yet.
absl::Status BuildStage(const StageContext& setting, const v1::Assign& assign, runtime::StageCallbacks callbacks, StageEpoch& epoch);

// Brings parameters and data to where the Assign says training goes on: a checkpoint, the job's init.from, or neither. Blocks.
absl::Status RestoreEpoch(const StageContext& setting, const v1::Assign& assign, StageEpoch& epoch);

// Meets the other replicas of the stage, all of which must have been built. Blocks until they have come, the inbox is cancelled, or with an
// Unavailable.
absl::Status JoinReplicaGroup(const StageContext& setting, StageEpoch& epoch);

// ---- Reports ----------------------------------------------------------------------------------------------------------------------------
// What stage 0 tells of the step that its epoch last decided on.
v1::ExecutorMessage StepReportOf(const StageEpoch& epoch);
v1::ExecutorMessage TimesReportOf(const StageEpoch& epoch, const runtime::StageStepTimes& times, int64_t memory_at_join,
                                  const DataPlane& data_plane);
v1::ExecutorMessage EndReportOf(const StageEpoch& epoch, int64_t last_step, const absl::Status& status, const DataPlane& data_plane);

}  // namespace fusionllm::services

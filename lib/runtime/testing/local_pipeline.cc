#include "lib/runtime/testing/local_pipeline.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/mutex.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/collective/local_communicator.h"
#include "lib/runtime/evaluation_pass.h"
#include "lib/runtime/expected_messages.h"

namespace fusionllm::runtime::testing {
namespace {

class Synthetic : public BatchSource {
 public:
  Synthetic(uint64_t seed, int64_t classes) : seed_(seed), classes_(classes) {}

  absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
    const base::CounterRng rng(seed_, absl::StrCat(placeholder.name, evaluation ? "/e" : "/t", step, "/", micro_batch));
    for (int64_t i = 0; i < out.type.elements(); ++i) {
      if (out.type.dtype == tensor::DType::kI32) {
        out.as<int32_t>()[i] = static_cast<int32_t>(rng.Below(i, classes_));
      } else {
        out.f32()[i] = 2 * rng.Uniform(i) - 1;
      }
    }
    return absl::OkStatus();
  }

 private:
  const uint64_t seed_;
  const int64_t classes_;
};

// Delivers straight into the receiver's inbox, which must expect it: so every test of the runtime is one of ExpectedMessages, too. But for
// `closed`, inboxes of stages without a program: what becomes of such is not the sender's error.
class LocalPort : public MessagePort {
 public:
  LocalPort(int stage, std::vector<std::unique_ptr<Inbox>>& inboxes, const std::set<const Inbox*>& closed)
      : stage_(stage), inboxes_(inboxes), closed_(closed) {}
  absl::Status Send(int to_stage, const MessageKey& key, Payload payload) override {
    if (closed_.contains(inboxes_[to_stage].get())) return absl::OkStatus();
    if (const absl::Status status = inboxes_[to_stage]->CheckDelivery(stage_, key, payload.size()); !status.ok()) {
      return absl::InternalError(absl::StrFormat("stage %d refuses what stage %d sends: %s", to_stage, stage_, status.message()));
    }
    inboxes_[to_stage]->Deliver(key, std::move(payload));
    return absl::OkStatus();
  }

 private:
  const int stage_;
  std::vector<std::unique_ptr<Inbox>>& inboxes_;
  const std::set<const Inbox*>& closed_;
};

// What ends all who wait when one has failed.
class Bell {
 public:
  void Ring() {
    const base::MutexLock lock(mutex_);
    rung_ = true;
    const absl::Status why = absl::CancelledError("another stage failed");
    for (Inbox* inbox : inboxes_) inbox->Cancel(why);
    for (collective::Communicator* communicator : communicators_) communicator->Abort(why);
    stop_.request_stop();
  }
  void Add(Inbox* inbox) { inboxes_.push_back(inbox); }  // before any thread is started
  void Add(collective::Communicator* communicator) {
    const base::MutexLock lock(mutex_);
    communicators_.insert(communicator);
    if (rung_) communicator->Abort(absl::CancelledError("another stage failed"));
  }
  void Remove(collective::Communicator* communicator) {
    const base::MutexLock lock(mutex_);
    communicators_.erase(communicator);
  }
  std::stop_token token() { return stop_.get_token(); }

 private:
  base::Mutex mutex_;
  bool rung_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Inbox*> inboxes_;
  std::set<collective::Communicator*> communicators_ ABSL_GUARDED_BY(mutex_);
  std::stop_source stop_;
};

class Pipelines {
 public:
  Pipelines(const autodiff::TrainingGraph& training, const PipelineOptions& options, BatchSource& source)
      : training_(training),
        options_(options),
        source_(source),
        placement_(autodiff::AssignStages(training, options.stage_of_forward_op)),
        inboxes_(static_cast<size_t>(options.config.replicas)),
        ports_(inboxes_.size()) {
    const int window =
        options.config.evaluation_window > 0 ? options.config.evaluation_window : EvaluationWindow(training, placement_, options.stages);
    for (size_t replica = 0; replica < inboxes_.size(); ++replica) {
      const int micro_batches = options.shares.empty() ? options.config.micro_batches : options.shares[replica];
      for (int s = 0; s < options.stages; ++s) {
        inboxes_[replica].push_back(std::make_unique<Inbox>());
        bell_.Add(inboxes_[replica].back().get());
        ports_[replica].push_back(std::make_unique<LocalPort>(s, inboxes_[replica], closed_));
        // A program that cannot be built is the executor's to report.
        const auto program = BuildStageProgram(training, placement_, s, options.stages, options.config.recompute, options.config.reshapes);
        if (!program.ok()) {
          closed_.insert(inboxes_[replica].back().get());
          continue;
        }
        inboxes_[replica].back()->Expect(
            std::make_unique<ExpectedMessages>(training, placement_, *program, micro_batches, options.config.replicas, window),
            options.first_step);
      }
    }
    result_.of_replica.resize(inboxes_.size());
  }

  absl::StatusOr<PipelineResult> Run() {
    std::vector<std::thread> threads;
    for (size_t replica = 0; replica < inboxes_.size(); ++replica) {
      for (int stage = 0; stage < options_.stages; ++stage) {
        threads.emplace_back([this, replica, stage] { End(replica, stage, RunStage(replica, stage)); });
      }
    }
    for (std::thread& thread : threads) thread.join();
    const base::MutexLock lock(mutex_);
    if (!first_error_.ok()) return first_error_;
    result_.parameters = result_.of_replica.front();
    return std::move(result_);
  }

 private:
  void End(size_t replica, int stage, const absl::Status& status) {
    if (status.ok()) return;
    {
      const base::MutexLock lock(mutex_);
      if (first_error_.ok()) first_error_ = status;
      if (options_.failed) options_.failed(static_cast<int>(replica), stage, status);
    }
    bell_.Ring();
  }

  // Null where there is one replica.
  absl::StatusOr<std::unique_ptr<collective::Communicator>> Join(size_t replica, int stage, kernels::Backend& backend) {
    if (inboxes_.size() == 1) return nullptr;
    const collective::GroupRank group_rank = {
        .group = absl::StrCat("stage-", stage), .epoch = 1, .rank = static_cast<int>(replica), .size = static_cast<int>(inboxes_.size())};
    if (options_.join) return options_.join(rendezvous_, group_rank, backend);
    return collective::JoinInProcess(rendezvous_, group_rank, backend.memory(), {}, bell_.token());
  }

  absl::Status RunStage(size_t replica, int stage) {
    FUSIONLLM_ASSIGN_OR_RETURN(const auto backend,
                               options_.make_backend ? options_.make_backend() : kernels::CreateBackend(options_.backend, {.threads = 1}));
    FUSIONLLM_ASSIGN_OR_RETURN(const auto communicator, Join(replica, stage, *backend));
    if (communicator == nullptr) return RunStage(replica, stage, *backend, nullptr);
    bell_.Add(communicator.get());
    const absl::Status status = RunStage(replica, stage, *backend, communicator.get());
    End(replica, stage, status);  // before the others see that it leaves
    bell_.Remove(communicator.get());
    return absl::OkStatus();
  }

  absl::Status RunStage(size_t replica, int stage, kernels::Backend& backend, collective::Communicator* communicator) {
    DeviceThrottle throttle;
    StageCallbacks callbacks;
    callbacks.on_step = [&](const StepResult& step) {
      const base::MutexLock lock(mutex_);
      result_.steps.push_back(step);
      if (options_.after_step) options_.after_step(step.step, *inboxes_.front().front());
      return options_.decide ? options_.decide(step.step) : StageCallbacks::Decision{};
    };
    callbacks.on_span = options_.on_span;
    callbacks.on_stage_step = options_.on_stage_step;
    if (options_.on_step_begin) callbacks.on_step_begin = [this, stage](int64_t step) { options_.on_step_begin(stage, step); };
    callbacks.on_evaluation = options_.on_evaluation;
    callbacks.on_checkpoint = [this, replica, stage](int64_t step) {
      const base::MutexLock lock(mutex_);
      if (options_.checkpoint) options_.checkpoint(static_cast<int>(replica), stage, step);
      return absl::OkStatus();
    };
    StageConfig config = options_.config;
    config.replica = static_cast<int>(replica);
    if (!options_.shares.empty()) {
      config.micro_batches = options_.shares[replica];
      config.in_flight = std::min(config.in_flight, config.micro_batches);
      config.first_micro_batch =
          std::accumulate(options_.shares.begin(), options_.shares.begin() + static_cast<std::ptrdiff_t>(replica), 0);
      config.batch_micro_batches = std::accumulate(options_.shares.begin(), options_.shares.end(), 0);
    }
    FUSIONLLM_ASSIGN_OR_RETURN(
        const auto executor,
        StageExecutor::Create(training_, placement_, stage, options_.stages, config,
                              options_.codecs_on ? options_.codecs_on(stage, backend) : options_.codecs(stage), backend,
                              *ports_[replica][static_cast<size_t>(stage)], *inboxes_[replica][static_cast<size_t>(stage)], source_,
                              throttle, callbacks, communicator));
    FUSIONLLM_RETURN_IF_ERROR(executor->store().InitializeAll(options_.parameter_seed));
    if (options_.prepare) {
      options_.prepare(stage, *executor);
      FUSIONLLM_RETURN_IF_ERROR(executor->PushToDevice());
    }
    FUSIONLLM_RETURN_IF_ERROR(executor->Run(options_.first_step, options_.steps).status());
    FUSIONLLM_RETURN_IF_ERROR(executor->PullToHost());
    const base::MutexLock lock(mutex_);
    executor->store().ForEachParameter(
        [&](const std::string& name, tensor::TensorView view) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          const auto bytes = view.bytes();
          result_.of_replica[replica][name].assign(bytes.begin(), bytes.end());
        },
        /*owned_only=*/true);
    if (options_.finish && replica == 0) options_.finish(stage, *executor);
    return absl::OkStatus();
  }

  const autodiff::TrainingGraph& training_;
  const PipelineOptions& options_;
  BatchSource& source_;
  const std::vector<int> placement_;
  std::set<const Inbox*> closed_;                               // of stages whose program cannot be built
  std::vector<std::vector<std::unique_ptr<Inbox>>> inboxes_;    // by replica and stage
  std::vector<std::vector<std::unique_ptr<LocalPort>>> ports_;  // likewise
  collective::LocalRendezvous rendezvous_;
  Bell bell_;
  base::Mutex mutex_;
  PipelineResult result_ ABSL_GUARDED_BY(mutex_);
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<BatchSource> SyntheticSource(uint64_t seed, int64_t classes) { return std::make_unique<Synthetic>(seed, classes); }

std::vector<int> ContiguousStages(const autodiff::TrainingGraph& training, int stages) {
  std::vector<int> stage_of_op(training.forward_ops, 0);
  int counted = 0, position = 0;
  for (int op = 0; op < training.forward_ops; ++op) counted += training.graph.op(op).kind != opdag::OpKind::kPlaceholder;
  for (int op = 0; op < training.forward_ops; ++op) {
    if (training.graph.op(op).kind == opdag::OpKind::kPlaceholder) continue;
    stage_of_op[op] = position++ * stages / counted;
  }
  return stage_of_op;
}

absl::StatusOr<PipelineResult> RunPipeline(const autodiff::TrainingGraph& training, const PipelineOptions& options, BatchSource& source) {
  return Pipelines(training, options, source).Run();
}

}  // namespace fusionllm::runtime::testing

#include "lib/runtime/testing/local_pipeline.h"

#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"

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

// Delivers straight into the receiver's inbox.
class LocalPort : public MessagePort {
 public:
  explicit LocalPort(std::vector<std::unique_ptr<Inbox>>& inboxes) : inboxes_(inboxes) {}
  absl::Status Send(int to_stage, const MessageKey& key, Payload payload) override {
    inboxes_[to_stage]->Deliver(key, std::move(payload));
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<Inbox>>& inboxes_;
};

}  // namespace

std::unique_ptr<BatchSource> SyntheticSource(uint64_t seed, int64_t classes) { return std::make_unique<Synthetic>(seed, classes); }

std::vector<int> ContiguousStages(const autodiff::TrainingGraph& training, int stages) {
  std::vector<int> stage_of_op(training.forward_ops, 0);
  int counted = 0, position = 0;
  for (int op = 0; op < training.forward_ops; ++op) counted += training.graph.op(op).type != "placeholder";
  for (int op = 0; op < training.forward_ops; ++op) {
    if (training.graph.op(op).type == "placeholder") continue;
    stage_of_op[op] = position++ * stages / counted;
  }
  return stage_of_op;
}

absl::StatusOr<PipelineResult> RunPipeline(const autodiff::TrainingGraph& training, const PipelineOptions& options, BatchSource& source) {
  const std::vector<int> placement = autodiff::Place(training, options.stage_of_forward_op);
  std::vector<std::unique_ptr<Inbox>> inboxes;
  for (int s = 0; s < options.stages; ++s) inboxes.push_back(std::make_unique<Inbox>());
  LocalPort port(inboxes);
  std::mutex mutex;
  PipelineResult result;
  absl::Status first_error;
  const auto run_stage = [&](int stage) -> absl::Status {
    FUSIONLLM_ASSIGN_OR_RETURN(const auto backend,
                               options.make_backend ? options.make_backend() : kernels::CreateBackend(options.backend, {.threads = 1}));
    DevicePacer pacer;
    StageCallbacks callbacks;
    callbacks.on_step = [&](const StepResult& step) {
      const std::lock_guard lock(mutex);
      result.steps.push_back(step);
      if (options.after_step) options.after_step(step.step, *inboxes.front());
      return StageCallbacks::Decision{};
    };
    callbacks.on_span = options.on_span;
    callbacks.on_stage_step = options.on_stage_step;
    FUSIONLLM_ASSIGN_OR_RETURN(
        const auto executor, StageExecutor::Create(training, placement, stage, options.stages, options.config,
                                                   options.codecs_on ? options.codecs_on(stage, *backend) : options.codecs(stage), *backend,
                                                   port, *inboxes[stage], source, pacer, callbacks));
    FUSIONLLM_RETURN_IF_ERROR(executor->store().InitializeAll(options.parameter_seed));
    if (options.prepare) {
      options.prepare(stage, *executor);
      FUSIONLLM_RETURN_IF_ERROR(executor->PushToDevice());
    }
    FUSIONLLM_RETURN_IF_ERROR(executor->Run(options.first_step, options.steps).status());
    FUSIONLLM_RETURN_IF_ERROR(executor->PullToHost());
    const std::lock_guard lock(mutex);
    executor->store().ForEachParameter(
        [&](const std::string& name, tensor::TensorView view) {
          const auto bytes = view.bytes();
          result.parameters[name].assign(bytes.begin(), bytes.end());
        },
        /*owned_only=*/true);
    if (options.finish) options.finish(stage, *executor);
    return absl::OkStatus();
  };
  std::vector<std::thread> threads;
  for (int s = 0; s < options.stages; ++s) {
    threads.emplace_back([&, s] {
      const absl::Status status = run_stage(s);
      if (status.ok()) return;
      {
        const std::lock_guard lock(mutex);
        if (first_error.ok()) first_error = status;
      }
      for (const auto& inbox : inboxes) inbox->Cancel(absl::CancelledError("another stage failed"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!first_error.ok()) return first_error;
  return result;
}

}  // namespace fusionllm::runtime::testing

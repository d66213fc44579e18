#include "cli/commands/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/status_macros.h"
#include "lib/data/dataset.h"
#include "lib/job/initial_model.h"
#include "lib/job/model_config.h"
#include "lib/kernels/backend.h"
#include "lib/runtime/stage_executor.h"
#include "lib/workload/stored_parameters.h"
#include "lib/workload/workload.h"

namespace fusionllm::cli {
namespace {

constexpr int64_t kWindowsAtATime = 8;

// All samples in file order; a global batch is one micro-batch.
class FileOrder final : public runtime::BatchSource {
 public:
  FileOrder(const data::Dataset& dataset, int64_t batch) : dataset_(dataset), batch_(batch) {}

  std::optional<int64_t> EvaluationSamples() const override { return dataset_.size(); }

  absl::Status Fill(bool, int64_t step, int, const opdag::Op& placeholder, tensor::TensorView out) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, runtime::SamplesOfPass(dataset_.size(), batch_, step));
    const bool target = placeholder.attributes.Text("role") == "labels";
    const data::SampleType& sample = dataset_.sample_type();
    std::vector<int64_t> dims = {batch_};
    const auto& rest = (target ? sample.target : sample.input).shape.dims();
    dims.insert(dims.end(), rest.begin(), rest.end());
    // The model may read samples flat.
    const tensor::TensorView shaped{{(target ? sample.target : sample.input).dtype, tensor::Shape(dims)}, out.data};
    const tensor::TensorView none{{}, nullptr};
    return target ? dataset_.FillBatch(indices, none, shaped) : dataset_.FillBatch(indices, shaped, none);
  }

 private:
  const data::Dataset& dataset_;
  const int64_t batch_;
};

// One stage has no peers.
class NoPeers final : public runtime::MessagePort {
 public:
  absl::Status Send(int, const runtime::MessageKey&, runtime::Payload) override {
    return absl::InternalError("a model in one stage has no other stage to send to");
  }
};

absl::Status LoadParameters(const checkpoint::CheckpointReader& stored, runtime::ParameterStore& store) {
  absl::Status first;
  store.ForEachParameter(
      [&](const std::string& name, tensor::TensorView view) {
        if (workload::BeginsAtZero(view.type, stored, name)) {
          std::memset(view.data, 0, view.type.bytes());
          return;
        }
        if (first.ok()) first = stored.Read(name, view);
      },
      /*owned_only=*/false);
  FUSIONLLM_RETURN_IF_ERROR(first);
  return store.PushToDevice();
}

absl::StatusOr<runtime::EvaluationResult> Evaluate(job::FusionJob job, const checkpoint::CheckpointReader& stored,
                                                   const data::Dataset& dataset, kernels::Backend& backend) {
  const int64_t batch = std::min(dataset.size(), kWindowsAtATime);
  job.spec.training.micro_batch_size = job.spec.training.global_batch_size = batch;
  FUSIONLLM_ASSIGN_OR_RETURN(const auto workload, workload::Resolve(job, ""));
  NoPeers port;
  runtime::Inbox inbox;
  FileOrder source(dataset, batch);
  runtime::DeviceThrottle throttle;
  const std::vector<int> one_stage(workload->training.graph.ops().size(), 0);
  FUSIONLLM_ASSIGN_OR_RETURN(const auto stage,
                             runtime::StageExecutor::Create(workload->training, one_stage, 0, 1, workload::StageConfigOf(*workload),
                                                            runtime::ExactEdgeCodec(), backend, port, inbox, source, throttle, {}));
  FUSIONLLM_RETURN_IF_ERROR(LoadParameters(stored, stage->store()));
  return stage->Evaluate(/*step=*/0, /*batches=*/std::nullopt);
}

absl::Status ReadFrom(const std::string& file, job::Data& data) {
  const bool generated = data.kind == job::DataKind::kShapes;
  if (generated && !file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--data ", file,
                     ": the job's data is generated (spec.data.kind: shapes), so there is no file to read; leave --data "
                     "out to evaluate on the generated images, or choose another kind by --set spec.data=..."));
  }
  if (generated) return absl::OkStatus();
  if (file.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("--data is required: the file to evaluate on, for data of kind ", job::ToString(data.kind)));
  std::error_code error;
  data.path = {std::filesystem::absolute(file, error).string()};
  data.validation.reset();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EvaluationReport> EvaluateFile(job::FusionJob job, const checkpoint::CheckpointReader& stored, const std::string& file,
                                              int64_t sequence_length, int threads) {
  if (sequence_length > 0) {
    if (!job::IsOfTokens(job.spec.data.kind)) {
      return absl::InvalidArgumentError(absl::StrCat("--sequence-length ", sequence_length, ": the job's data is of kind ",
                                                     job::ToString(job.spec.data.kind), ", whose samples are no sequences; leave it out"));
    }
    // The number of positions follows the sequence length unless it is written down; the stored model's stays what it was.
    FUSIONLLM_ASSIGN_OR_RETURN(const job::ResolvedModel model, job::ResolveModel(job.spec));
    if (model.family != nullptr) job.spec.model.config.block_size = model.sizes.settings.block_size;
    job.spec.training.sequence_length = sequence_length;
  }
  FUSIONLLM_RETURN_IF_ERROR(ReadFrom(file, job.spec.data));
  job.spec.training.micro_batch_size = job.spec.training.global_batch_size = 1;
  absl::StatusOr<std::unique_ptr<workload::Workload>> resolved = workload::Resolve(job, "");
  if (sequence_length > 0 && absl::StrContains(resolved.status().message(), "sequenceLength")) {
    return absl::Status(resolved.status().code(),
                        absl::StrCat("--sequence-length ", sequence_length, ": ", std::string(resolved.status().message())));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const auto workload, std::move(resolved));
  FUSIONLLM_ASSIGN_OR_RETURN(const opdag::Graph graph, workload::BuildForwardGraph(job, ""));
  FUSIONLLM_RETURN_IF_ERROR(job::CheckInitialModel(job, stored.path()));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> warnings,
                             base::AsBadInput(workload::CheckStart(job, graph, stored, workload::ReadFor::kEvaluation)));
  for (const std::string& warning : warnings) std::fprintf(stderr, "fusionctl: warning: %s\n", warning.c_str());
  workload->data.split = data::DatasetSplit::kTest;  // of a folder of images or tokens
  FUSIONLLM_ASSIGN_OR_RETURN(const data::TrainingData data, base::AsBadInput(data::OpenTrainingData(workload->data)));
  const data::Dataset* const dataset = data.validation != nullptr ? data.validation.get() : data.training.get();
  FUSIONLLM_RETURN_IF_ERROR(workload::CheckSamplesFit(*workload, dataset->sample_type()));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto backend, kernels::CreateBackend(job::ToString(job.spec.strategy.backend), {.threads = threads}));

  const int64_t windows = dataset->size();
  FUSIONLLM_ASSIGN_OR_RETURN(const runtime::EvaluationResult result, Evaluate(job, stored, *dataset, *backend));
  const int64_t targets = windows * dataset->targets_per_sample();
  const auto counted = static_cast<int64_t>(std::llround(static_cast<double>(targets) * result.counted));
  return EvaluationReport{.loss = counted > 0 ? std::optional(result.loss) : std::nullopt,
                          .accuracy = result.accuracy,
                          .windows = windows,
                          .tokens = counted,
                          .ignored_tokens = targets - counted};
}

}  // namespace fusionllm::cli

#include "lib/workload/workload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lib/autodiff/lower_precision.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/data/images.h"
#include "lib/data/shapes.h"
#include "lib/job/data_rules.h"
#include "lib/job/default_micro_batch.h"
#include "lib/opdag/target_weights.h"
#include "lib/opdag/text.h"
#include "lib/workload/input_limits.h"
#include "lib/workload/job_learning_rate.h"

namespace fusionllm::workload {
namespace {

kernels::OptimizerConfig OptimizerOf(const job::Optimizer& optimizer) {
  const bool adamw = optimizer.name == job::OptimizerName::kAdamw;
  return {.kind = adamw ? kernels::OptimizerConfig::Kind::kAdamW : kernels::OptimizerConfig::Kind::kSgd,
          .learning_rate = optimizer.learning_rate,
          .weight_decay = optimizer.weight_decay,
          .beta1 = optimizer.beta1,
          .beta2 = optimizer.beta2,
          .epsilon = optimizer.epsilon,
          .momentum = adamw ? 0 : optimizer.momentum,
          .nesterov = optimizer.nesterov};
}

data::DatasetConfig DataOf(const job::Spec& spec, const opdag::Graph& graph, const std::string& base_directory) {
  data::DatasetConfig config{.kind = spec.data.kind, .paths = spec.data.path, .base_folder = base_directory};
  const job::DataRules rules = job::DataRulesOf(spec.data);
  config.encoding = rules.encoding == job::TextEncoding::kUtf8 ? data::TextEncoding::kUtf8 : data::TextEncoding::kBytes;
  config.held_out = rules.split == job::Split::kEven ? data::ValidationSplit::kEven : data::ValidationSplit::kEnd;
  if (spec.data.token_dtype != job::TokenDtype::kAuto) config.token_dtype = job::ToString(spec.data.token_dtype);
  config.sequence_length = spec.training.sequence_length;
  const InputLimits limits = InputLimitsOf(graph);
  // The tokens of a window are its labels too, one further.
  config.vocabulary_size =
      limits.tokens == 0 || limits.labels == 0 ? limits.tokens + limits.labels : std::min(limits.tokens, limits.labels);
  config.num_classes = limits.labels;
  config.image_channels = limits.image_channels;
  config.shapes = {.samples = spec.data.shapes.samples,
                   .image_size = spec.data.shapes.image_size,
                   .num_classes = spec.data.shapes.num_classes,
                   .seed = static_cast<uint64_t>(spec.data.shapes.seed)};
  if (spec.data.validation.has_value()) {
    config.validation_paths = spec.data.validation->path;
    config.validation_fraction = spec.data.validation->fraction.value_or(0);
  }
  return config;
}

// Images where the data has tokens, or the other way round: what is said of ids or shapes then leads nowhere.
absl::Status CheckKind(const job::FusionJob& job, const std::string& base_directory, const opdag::Graph& graph) {
  const job::DataKind kind = job.spec.data.kind;
  const bool tokens = job::IsOfTokens(kind);
  for (const opdag::Op& op : graph.ops()) {
    if (op.kind != opdag::OpKind::kPlaceholder || op.attributes.Text("role") != (tokens ? "images" : "tokens")) continue;
    const tensor::TensorType& type = graph.value(op.outputs[0]).type;
    const std::vector<int64_t>& dims = type.shape.dims();
    return absl::InvalidArgumentError(absl::StrFormat(
        "spec.data.kind: %s gives %s, and the graph reads %s (%splaceholder '%s' of %s[%s] a sample): take data of kind %s, or a graph "
        "that reads %s",
        job::ToString(kind), tokens ? "tokens" : "images", tokens ? "images" : "tokens", PlaceOfOp(job, base_directory, op.name), op.name,
        tensor::Name(type.dtype), absl::StrJoin(dims.begin() + (dims.empty() ? 0 : 1), dims.end(), ", "),
        tokens ? "cifar10, idx or shapes" : "text or tokens", tokens ? "tokens" : "images"));
  }
  return absl::OkStatus();
}

// What is known of the samples without the data. Of idx nothing is.
absl::Status CheckKnownSamples(const Workload& workload) {
  const data::DatasetConfig& config = workload.data;
  switch (config.kind) {
    case data::DatasetKind::kText:
    case data::DatasetKind::kTokens: {
      const tensor::TensorType window{tensor::DType::kI32, {config.sequence_length}};
      return CheckSamplesFit(workload, {window, window});
    }
    case data::DatasetKind::kShapes: {
      FUSIONLLM_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> shapes, data::OpenShapes(config));
      return CheckSamplesFit(workload, shapes->sample_type());
    }
    case data::DatasetKind::kCifar10:
      return CheckSamplesFit(workload, data::Cifar10SampleType());
    case data::DatasetKind::kIdx:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

// The op that a finding begins with: "op 'fc' (linear): ..", or the one that owns "parameter 'fc.weight' ..".
std::string OpOf(const opdag::Graph& graph, absl::string_view finding) {
  if (const std::string op = NamedOp(finding); !op.empty()) return op;
  if (!absl::ConsumePrefix(&finding, "parameter '")) return "";
  const std::string name(finding.substr(0, finding.find('\'')));
  const opdag::ParameterId parameter = graph.FindParameter(name);
  for (const opdag::Op& op : graph.ops()) {
    if (std::find(op.parameters.begin(), op.parameters.end(), parameter) != op.parameters.end()) return op.name;
  }
  return "";
}

// With the place of that op in the graph that the job brings along.
absl::Status InGraph(const job::FusionJob& job, const std::string& base_directory, const opdag::Graph& graph, const absl::Status& status) {
  if (status.ok()) return status;
  const std::string op = OpOf(graph, status.message());
  return op.empty() ? status : absl::Status(status.code(), absl::StrCat(PlaceOfOp(job, base_directory, op), status.message()));
}

// Of a graph that the job brings along; those of families are right.
absl::Status CheckRoles(const opdag::Graph& graph) {
  for (const opdag::Op& op : graph.ops()) {
    if (op.kind != opdag::OpKind::kPlaceholder || op.attributes.Text("role") == opdag::kTargetWeightRole) continue;
    if (const std::string role = op.attributes.Text("role"); role != "tokens" && role != "images" && role != "labels") {
      return absl::InvalidArgumentError(
          absl::StrFormat("op '%s' has the role '%s', which spec.data does not fill; it fills tokens, images and labels", op.name, role));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Workload>> Resolve(const job::FusionJob& job, const std::string& base_directory) {
  auto workload = std::make_unique<Workload>();
  workload->job = job;
  workload->base_directory = base_directory;
  const job::Training& training = job.spec.training;
  workload->micro_batch_size =
      training.micro_batch_size > 0 ? training.micro_batch_size : job::DefaultMicroBatchSize(training.global_batch_size);
  workload->micro_batches = static_cast<int>(training.global_batch_size / workload->micro_batch_size);

  FUSIONLLM_ASSIGN_OR_RETURN(opdag::Graph graph, BuildForwardGraph(job, base_directory));
  const auto in_graph = [&](const absl::Status& status) { return InGraph(job, base_directory, graph, status); };
  FUSIONLLM_RETURN_IF_ERROR(in_graph(opdag::InferTypes(graph, workload->micro_batch_size)));
  FUSIONLLM_RETURN_IF_ERROR(opdag::Verify(graph));
  FUSIONLLM_RETURN_IF_ERROR(in_graph(CheckRoles(graph)));
  FUSIONLLM_RETURN_IF_ERROR(CheckKind(job, base_directory, graph));
  if (graph.loss() == opdag::kNone || graph.parameters().empty()) {
    const std::optional<job::GraphSource>& source = job.spec.model.graph;
    const std::string place = source.has_value() && source->file.has_value() ? *source->file : "spec.model.graph.inline";
    return absl::InvalidArgumentError(absl::StrCat(place, ": graph '", graph.name(), "' ",
                                                   graph.loss() == opdag::kNone ? "returns no loss" : "has no parameter",
                                                   ", so there is nothing to train"));
  }
  const bool bf16 = training.precision == job::Precision::kBf16;
  workload->graph_hash =
      base::StableHash(absl::StrCat(opdag::PrintGraph(graph), "\nbatch ", workload->micro_batch_size, bf16 ? "\nprecision bf16" : ""));
  absl::StatusOr<autodiff::TrainingGraph> training_graph = autodiff::Differentiate(graph);
  FUSIONLLM_RETURN_IF_ERROR(in_graph(training_graph.status()));
  workload->training = *std::move(training_graph);
  if (bf16) FUSIONLLM_RETURN_IF_ERROR(autodiff::LowerPrecision(workload->training));

  workload->data = DataOf(job.spec, graph, base_directory);
  FUSIONLLM_RETURN_IF_ERROR(CheckKnownSamples(*workload));
  if (job::IsOfTokens(job.spec.data.kind)) {
    workload->targets_per_sample = training.sequence_length;
  }
  workload->optimizer = OptimizerOf(training.optimizer);
  workload->learning_rate = ScheduleOf(training);
  return workload;
}

runtime::StageConfig StageConfigOf(const Workload& workload) {
  const job::Training& training = workload.job.spec.training;
  return {.micro_batches = workload.micro_batches,
          .in_flight = 1,
          .recompute = training.recompute == job::Recompute::kFull ? runtime::Recompute::kFull : runtime::Recompute::kNone,
          .optimizer = workload.optimizer,
          .learning_rate = workload.learning_rate,
          .gradient_clip_norm = training.gradient_clip_norm,
          .seed = static_cast<uint64_t>(training.seed),
          .micro_batch_size = workload.micro_batch_size,
          .evaluate_every = training.evaluation.every_steps,
          .evaluation_batches = training.evaluation.batches};
}

}  // namespace fusionllm::workload

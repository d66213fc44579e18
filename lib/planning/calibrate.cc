#include "lib/planning/calibrate.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/compression/codec.h"
#include "lib/estimator/graph_cost.h"
#include "lib/opdag/op_schema.h"
#include "lib/runtime/device_pacer.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::planning {
namespace {

// Elements of the tensors on which optimizer and codecs are timed: beyond the caches of a core, as real ones are.
constexpr int64_t kSampleElements = int64_t{1} << 19;

absl::Status Named(const absl::Status& status, const opdag::Op& op) {
  return absl::Status(status.code(), absl::StrCat("calibrating op '", op.name, "' (", op.type, "): ", std::string(status.message())));
}

class Timer {
 public:
  explicit Timer(const CalibrationOptions& options) : options_(options) {}

  // The least seconds of `run` over enough repetitions.
  template <typename Run>
  absl::StatusOr<double> LeastSeconds(Run run) const {
    double least = std::numeric_limits<double>::infinity();
    double spent = 0;
    for (int i = 0; i < options_.most_runs && (i < options_.least_runs || spent < options_.seconds_per_op); ++i) {
      const int64_t begin = Now();
      FUSIONLLM_RETURN_IF_ERROR(run());
      const double seconds = static_cast<double>(Now() - begin) * 1e-9;
      least = std::min(least, seconds);
      spent += seconds;
    }
    return least;
  }

 private:
  int64_t Now() const { return options_.threads == 1 ? runtime::ThreadCpuNanoseconds() : runtime::MonotonicNanoseconds(); }
  const CalibrationOptions& options_;
};

absl::StatusOr<wire::OpProfile> MeasureOp(const opdag::Graph& graph, const opdag::Op& op, kernels::Backend& backend, const Timer& timer) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Kernel> kernel, backend.Prepare(graph, op));
  std::vector<tensor::Tensor> memory;
  memory.reserve(op.inputs.size() + op.parameters.size() + op.outputs.size());
  const auto allocate = [&](const tensor::TensorType& type) { return memory.emplace_back(type).view(); };
  std::vector<tensor::ConstTensorView> inputs;
  std::vector<tensor::TensorView> parameters, outputs;
  for (const opdag::ValueId input : op.inputs) inputs.emplace_back(allocate(graph.value(input).type));
  for (const opdag::ParameterId parameter : op.parameters) parameters.push_back(allocate(graph.parameter(parameter).type));
  for (const opdag::ValueId output : op.outputs) outputs.push_back(allocate(graph.value(output).type));
  const tensor::Buffer workspace(kernel->workspace_bytes());
  const kernels::KernelArguments arguments{.inputs = inputs,
                                           .parameters = parameters,
                                           .outputs = outputs,
                                           .accumulate = {},
                                           .mode = kernels::Mode::kRecompute,
                                           .random = {},
                                           .workspace = {workspace.data(), workspace.size()}};
  FUSIONLLM_ASSIGN_OR_RETURN(const double seconds, timer.LeastSeconds([&] { return kernel->Run(arguments); }));
  const opdag::OpCost cost = opdag::CostOf(graph, op);
  return wire::OpProfile{.seconds = seconds,
                         .workspace_bytes = static_cast<int64_t>(kernel->workspace_bytes()),
                         .op_class = std::string(opdag::Name(opdag::FindSchema(op.type)->op_class)),
                         .flops = cost.flops,
                         .bytes = static_cast<double>(cost.bytes_read + cost.bytes_written)};
}

absl::StatusOr<double> MeasureUpdate(const CalibrationOptions& options, const Timer& timer) {
  std::vector<float> parameter(kSampleElements, 0.5f), gradient(kSampleElements, 0.25f);
  std::vector<std::vector<float>> state(runtime::StateNames(options.optimizer).size(), std::vector<float>(kSampleElements, 0.125f));
  std::vector<std::span<float>> views(state.begin(), state.end());
  int64_t step = 1;
  double norm = 0;
  FUSIONLLM_ASSIGN_OR_RETURN(const double seconds, timer.LeastSeconds([&] {
    norm += runtime::SumOfSquares(gradient);
    runtime::UpdateParameter(options.optimizer, 1e-6, /*decay=*/true, ++step, 1.0f, gradient, parameter, views);
    return absl::OkStatus();
  }));
  if (!(norm > 0)) return absl::InternalError("calibration: the norm of a gradient that is not zero came out as zero");
  return seconds / kSampleElements;
}

absl::StatusOr<wire::CodecProfile> MeasureCodec(const compression::CodecSpec& spec, const Timer& timer) {
  using compression::Direction;
  std::vector<float> values(kSampleElements), decoded(kSampleElements);
  const base::CounterRng rng(1, "calibration");
  for (int64_t i = 0; i < kSampleElements; ++i) values[i] = rng.Normal(i);
  compression::EncoderState state;
  compression::Mask mask;
  std::vector<std::byte> message;
  wire::CodecProfile profile;
  FUSIONLLM_ASSIGN_OR_RETURN(profile.encode_seconds, timer.LeastSeconds([&] {
    return compression::Encode(spec, Direction::kForward, values, nullptr, &state, &message, &mask);
  }));
  FUSIONLLM_ASSIGN_OR_RETURN(profile.decode_seconds, timer.LeastSeconds([&] {
    return compression::Decode(Direction::kForward, message, nullptr, std::span<float>(decoded), &mask);
  }));
  profile.encode_seconds /= kSampleElements;
  profile.decode_seconds /= kSampleElements;
  return profile;
}

}  // namespace

absl::StatusOr<wire::DeviceProfile> Calibrate(const autodiff::TrainingGraph& training, kernels::Backend& backend,
                                              const CalibrationOptions& options) {
  const Timer timer(options);
  wire::DeviceProfile profile{.backend = std::string(backend.name()), .threads = options.threads};
  for (const opdag::Op& op : training.graph.ops()) {
    if (op.type == "placeholder") continue;
    std::string signature = estimator::OpSignature(training.graph, op);
    if (profile.ops.contains(signature)) continue;
    if (options.cancelled && options.cancelled()) return absl::CancelledError("calibration was cancelled");
    absl::StatusOr<wire::OpProfile> measured = MeasureOp(training.graph, op, backend, timer);
    if (!measured.ok()) return Named(measured.status(), op);
    profile.ops.emplace(std::move(signature), *measured);
  }
  FUSIONLLM_ASSIGN_OR_RETURN(profile.update_seconds_per_element, MeasureUpdate(options, timer));
  using compression::CodecKind;
  for (const CodecKind kind :
       {CodecKind::kExact, CodecKind::kFp16, CodecKind::kBf16, CodecKind::kInt8, CodecKind::kInt4, CodecKind::kTopK}) {
    if (options.cancelled && options.cancelled()) return absl::CancelledError("calibration was cancelled");
    const compression::CodecSpec spec = kind == CodecKind::kTopK ? compression::TopK(20) : compression::CodecSpec{.kind = kind};
    FUSIONLLM_ASSIGN_OR_RETURN(profile.codecs[std::string(compression::Name(kind))], MeasureCodec(spec, timer));
  }
  return profile;
}

}  // namespace fusionllm::planning

#include "lib/planning/op_measurement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/estimator/graph_cost.h"
#include "lib/kernels/optimizer.h"
#include "lib/opdag/op_schema.h"
#include "lib/runtime/edge_codec.h"
#include "lib/runtime/stage_program.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::planning {
namespace {

using autodiff::TrainingGraph;
using opdag::OpId;

constexpr int kUpdates = 5;
constexpr double kLearningRate = 1e-6;

bool IsPlaceholder(const opdag::Op& op) { return op.kind == opdag::OpKind::kPlaceholder; }

// A slice that is only measured has no peers.
class NoPeers final : public runtime::MessagePort {
 public:
  absl::Status Send(int to_stage, const runtime::MessageKey&, runtime::Payload) override {
    return absl::InternalError(absl::StrCat("a slice that is measured sent a message to stage ", to_stage));
  }
};

double Median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2), numbers.end());
  return numbers[numbers.size() / 2];
}

wire::OpProfile Describe(const opdag::Graph& graph, const runtime::OpTime& time) {
  const opdag::Op& op = graph.op(time.op);
  const opdag::OpCost cost = opdag::CostOf(graph, op);
  return {.workspace_bytes = time.workspace_bytes,
          .op_class = std::string(opdag::Name(opdag::FindSchema(op.kind)->op_class)),
          .flops = cost.flops,
          .bytes = static_cast<double>(cost.bytes_read + cost.bytes_written)};
}

// Parameters, gradients, optimizer state, and values of each.
std::vector<int64_t> BytesOfForwardOps(const TrainingGraph& training, int state_tensors) {
  const estimator::GraphCosts costs = estimator::CostsOf(training, state_tensors);
  std::vector<int64_t> bytes(training.forward_ops, 0);
  for (const estimator::OpCosts& op : costs.ops) bytes[op.op] += op.parameter_bytes + op.gradient_bytes + op.optimizer_bytes;
  for (const estimator::ValueCosts& value : costs.values) bytes[value.producer] += value.bytes;
  return bytes;
}

class GraphMeasurer {
 public:
  GraphMeasurer(const TrainingGraph& training, const runtime::StageConfig& config, kernels::Backend& backend, runtime::BatchSource& data,
                const runtime::MeasureOptions& options, int in_flight, int64_t memory_bytes)
      : training_(training),
        views_(autodiff::ViewsOf(training)),
        config_(config),
        backend_(backend),
        data_(data),
        options_(options),
        memory_bytes_(memory_bytes) {
    config_.micro_batches = config_.in_flight = in_flight;
    config_.schedule = schedule::k1F1B;
  }

  absl::StatusOr<OpMeasurements> Run(const std::vector<int>& slice_of_forward_op) {
    const std::vector<int> slice_of_op = autodiff::AssignStages(training_, slice_of_forward_op);
    const int slices = 1 + *std::max_element(slice_of_forward_op.begin(), slice_of_forward_op.end());
    for (int slice = 0; slice < slices; ++slice) FUSIONLLM_RETURN_IF_ERROR(CheckMemory(slice_of_op, slice, slices));
    for (int slice = 0; slice < slices; ++slice) {
      if (HasNews(slice_of_op, slice)) FUSIONLLM_RETURN_IF_ERROR(MeasureSlice(slice_of_op, slice, slices));
    }
    for (auto& [signature, op] : result_.ops) op.seconds /= counts_.at(signature);
    if (elements_ > 0) result_.update_seconds_per_element = update_s_ / static_cast<double>(elements_);
    if (data_bytes_ > 0) result_.data_seconds_per_byte = data_s_ / static_cast<double>(data_bytes_);
    return std::move(result_);
  }

 private:
  bool HasNews(const std::vector<int>& slice_of_op, int slice) const {
    for (size_t id = 0; id < slice_of_op.size(); ++id) {
      const opdag::Op& op = training_.graph.op(static_cast<OpId>(id));
      if (slice_of_op[id] == slice && !IsPlaceholder(op) && !views_[id] &&
          !result_.ops.contains(estimator::OpSignature(training_.graph, op)))
        return true;
    }
    return false;
  }

  // Before anything of the slice is there: of memory that is promised and then not had, the kernel ends processes.
  absl::Status CheckMemory(const std::vector<int>& slice_of_op, int slice, int slices) const {
    if (!backend_.memory().on_host()) return absl::OkStatus();  // a card refuses by itself
    FUSIONLLM_ASSIGN_OR_RETURN(const runtime::StageProgram program,
                               runtime::BuildStageProgram(training_, slice_of_op, slice, slices, config_.recompute, config_.reshapes));
    const auto state_tensors = static_cast<int>(kernels::StateNames(config_.optimizer).size());
    const auto bytes = static_cast<int64_t>(runtime::MemoryOf(program, training_, config_.in_flight, state_tensors).total());
    if (bytes <= memory_bytes_) return absl::OkStatus();
    const std::vector<int64_t> bytes_of_op = BytesOfForwardOps(training_, state_tensors);
    OpId largest = program.forward.ops.front().op;
    for (const runtime::ProgramOp& op : program.forward.ops) {
      if (bytes_of_op[op.op] > bytes_of_op[largest]) largest = op.op;
    }
    const opdag::Op& op = training_.graph.op(largest);
    const auto size = [](int64_t of) { return scheduler::SizeText(static_cast<double>(of)); };
    return tensor::OutOfMemoryError(absl::StrFormat(
        "op '%s' (%s) needs %s to be measured (%d bytes), for micro-batches of %d with parameters, gradients and the optimizer's state; "
        "this process may use %s",
        op.name, opdag::Name(op.kind), size(bytes), bytes, training_.graph.batch(), size(memory_bytes_)));
  }

  absl::Status MeasureSlice(const std::vector<int>& slice_of_op, int slice, int slices) {
    NoPeers port;
    runtime::Inbox inbox;
    runtime::DeviceThrottle throttle;
    FUSIONLLM_ASSIGN_OR_RETURN(const auto executor,
                               runtime::StageExecutor::Create(training_, slice_of_op, slice, slices, config_, runtime::ExactEdgeCodec(),
                                                              backend_, port, inbox, data_, throttle, {}));
    FUSIONLLM_RETURN_IF_ERROR(executor->store().InitializeAll(/*seed=*/1));
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<runtime::OpTime> times, executor->MeasureOps(options_));
    for (const runtime::OpTime& time : times) {
      const opdag::Op& op = training_.graph.op(time.op);
      if (views_[time.op]) continue;
      if (IsPlaceholder(op)) {
        if (time.op >= training_.forward_ops) continue;  // the gradient that the loss starts from
        data_s_ += time.seconds;
        data_bytes_ += static_cast<int64_t>(training_.graph.value(op.outputs[0]).type.bytes());
        continue;
      }
      const std::string signature = estimator::OpSignature(training_.graph, op);
      const auto [entry, added] = result_.ops.try_emplace(signature, Describe(training_.graph, time));
      entry->second.seconds += time.seconds;
      ++counts_[signature];
    }
    return MeasureUpdate(executor->store());
  }

  // The end of a step as the runtime does it: one pass over all gradients for the norm, one over everything for the update.
  absl::Status MeasureUpdate(runtime::ParameterStore& store) {
    int64_t elements = 0;
    store.ForEachParameter(
        [&](const std::string& name, tensor::TensorView view) {
          const opdag::Parameter& parameter = training_.graph.parameter(training_.graph.FindParameter(name));
          if (parameter.trainable) elements += view.type.elements();
        },
        /*owned_only=*/false);
    if (elements == 0) return absl::OkStatus();
    std::vector<double> seconds;
    for (int i = 1; i <= kUpdates; ++i) {
      const int64_t begin = Now();
      FUSIONLLM_RETURN_IF_ERROR(store.SumsOfSquares().status());
      FUSIONLLM_RETURN_IF_ERROR(store.Update(kLearningRate, i, 1.0f));
      FUSIONLLM_RETURN_IF_ERROR(backend_.Synchronize());
      seconds.push_back(1e-9 * static_cast<double>(Now() - begin));
    }
    update_s_ += Median(std::move(seconds));
    elements_ += elements;
    return absl::OkStatus();
  }

  int64_t Now() const { return options_.thread_cpu ? runtime::ThreadCpuNanoseconds() : runtime::MonotonicNanoseconds(); }

  const TrainingGraph& training_;
  const std::vector<bool> views_;
  runtime::StageConfig config_;
  kernels::Backend& backend_;
  runtime::BatchSource& data_;
  const runtime::MeasureOptions& options_;
  const int64_t memory_bytes_;  // that this process may use
  OpMeasurements result_;
  std::map<std::string, int> counts_;
  double update_s_ = 0, data_s_ = 0;
  int64_t elements_ = 0, data_bytes_ = 0;
};

}  // namespace

std::vector<int> SlicesOf(const TrainingGraph& training, int state_tensors, int64_t slice_bytes) {
  const std::vector<int64_t> bytes = BytesOfForwardOps(training, state_tensors);
  std::vector<int> slices(training.forward_ops, 0);
  int slice = 0;
  int64_t filled = 0;
  for (OpId op = 0; op < training.forward_ops; ++op) {
    if (IsPlaceholder(training.graph.op(op))) continue;
    if (filled >= slice_bytes) {
      ++slice;
      filled = 0;
    }
    slices[op] = slice;
    filled += bytes[op];
  }
  return slices;
}

absl::StatusOr<OpMeasurements> MeasureGraph(const TrainingGraph& training, const runtime::StageConfig& config, kernels::Backend& backend,
                                            runtime::BatchSource& data, const runtime::MeasureOptions& options, int in_flight,
                                            int64_t slice_bytes, int64_t memory_bytes) {
  int64_t value_bytes = 0;
  for (const opdag::Value& value : training.graph.values()) value_bytes += static_cast<int64_t>(value.type.bytes());
  if (value_bytes * in_flight > slice_bytes) in_flight = 1;
  const int state_tensors = static_cast<int>(kernels::StateNames(config.optimizer).size());
  return GraphMeasurer(training, config, backend, data, options, in_flight, memory_bytes)
      .Run(SlicesOf(training, state_tensors, slice_bytes));
}

}  // namespace fusionllm::planning

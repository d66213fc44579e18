// Times every distinct op of a GPT-2 and a ResNet-50 training step on the cpu back end, and whole steps with a share for each op type.
//
// Sizes: GPT-2 with 6 layers, width 384, 6 heads, 256 tokens, batch 8, vocabulary 256; ResNet-50 with the CIFAR stem on 32x32, batch 32.
// One thread unless FUSIONLLM_BENCH_THREADS says otherwise.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "lib/autodiff/training_graph.h"
#include "lib/base/philox.h"
#include "lib/kernels/backend.h"
#include "lib/models/gpt2/graph.h"
#include "lib/models/resnet/graph.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::kernels {
namespace {

int Threads() {
  const char* text = std::getenv("FUSIONLLM_BENCH_THREADS");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

// With one thread its CPU time, so that other work on the machine hardly blurs the figures; else the time on the wall.
double Now() {
  timespec now;
  clock_gettime(Threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A training graph with prepared kernels. Values live from producer to last consumer in buffers that are used again, as in the runtime.
class Step {
 public:
  Step(opdag::Graph forward, int64_t batch) : backend_(*CreateBackend("cpu", {.threads = Threads()})) {
    Check(opdag::InferTypes(forward, batch));
    auto training = autodiff::Differentiate(forward);
    Check(training.status());
    graph_ = std::move(training->graph);
    for (const opdag::Parameter& parameter : graph_.parameters()) parameters_.push_back(Filled(parameter.type, 0.05f));
    size_t workspace = 0;
    for (const opdag::Op& op : graph_.ops()) {
      auto kernel = backend_->Prepare(graph_, op);
      Check(kernel.status());
      kernels_.push_back(*std::move(kernel));
      workspace = std::max(workspace, kernels_.back()->workspace_bytes());
    }
    workspace_ = tensor::Buffer(workspace);
    values_.resize(graph_.values().size());
    last_use_.resize(graph_.values().size());
    for (size_t v = 0; v < values_.size(); ++v) {
      const opdag::Value& value = graph_.value(static_cast<opdag::ValueId>(v));
      last_use_[v] = value.consumers.empty() ? value.producer : value.consumers.back();
    }
  }

  const opdag::Graph& graph() const { return graph_; }

  void RunAll(std::map<std::string, double>& seconds_of_type) {
    for (opdag::OpId id = 0; id < static_cast<opdag::OpId>(graph_.ops().size()); ++id) {
      Allocate(id);
      const double start = Now();
      RunOp(id);
      seconds_of_type[std::string(opdag::Name(graph_.op(id).kind))] += Now() - start;
      Release(id);
    }
  }

  // Gives an op's inputs and outputs memory for running it alone.
  void Allocate(opdag::OpId id) {
    for (const auto& ids : {graph_.op(id).inputs, graph_.op(id).outputs}) {
      for (const opdag::ValueId v : ids) {
        if (values_[v].view().data == nullptr) values_[v] = Take(graph_.value(v).type);
      }
    }
  }

  void RunOp(opdag::OpId id) {
    const opdag::Op& op = graph_.op(id);
    std::vector<tensor::ConstTensorView> inputs;
    std::vector<tensor::TensorView> parameters, outputs;
    for (const opdag::ValueId v : op.inputs) inputs.push_back(values_[v].view());
    for (const opdag::ParameterId p : op.parameters) parameters.push_back(parameters_[p].view());
    for (const opdag::ValueId v : op.outputs) outputs.push_back(values_[v].view());
    Check(kernels_[id]->Run(
        {.inputs = inputs, .parameters = parameters, .outputs = outputs, .workspace = {workspace_.data(), workspace_.size()}}));
  }

 private:
  static void Check(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }

  // Integers are 0: a token and a label that every model has.
  static tensor::Tensor Filled(const tensor::TensorType& type, float scale) {
    tensor::Tensor tensor(type);
    const base::CounterRng rng(1, "bench");
    for (int64_t i = 0; type.dtype == tensor::DType::kF32 && i < type.elements(); ++i)
      tensor.f32()[i] = scale * (rng.Uniform(i % 65536) - 0.5f);
    return tensor;
  }

  tensor::Tensor Take(const tensor::TensorType& type) {
    auto found = free_.find(type.ToString());
    if (found == free_.end() || found->second.empty()) return Filled(type, 1);
    tensor::Tensor tensor = std::move(found->second.back());
    found->second.pop_back();
    return tensor;
  }

  void Release(opdag::OpId id) {
    for (const auto& ids : {graph_.op(id).inputs, graph_.op(id).outputs}) {
      for (const opdag::ValueId v : ids) {
        if (last_use_[v] > id || values_[v].view().data == nullptr) continue;
        if (graph_.op(graph_.value(v).producer).kind == opdag::OpKind::kPlaceholder) continue;
        free_[graph_.value(v).type.ToString()].push_back(std::move(values_[v]));
        values_[v] = tensor::Tensor();
      }
    }
  }

  std::unique_ptr<Backend> backend_;
  opdag::Graph graph_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<tensor::Tensor> parameters_, values_;
  std::vector<opdag::OpId> last_use_;
  std::map<std::string, std::vector<tensor::Tensor>> free_;
  tensor::Buffer workspace_;
};

template <int64_t kVocabulary>
std::unique_ptr<Step> Gpt2() {
  return std::make_unique<Step>(
      *models::BuildGpt2({.layers = 6, .heads = 6, .embd = 384, .vocab = kVocabulary, .positions = 256, .sequence = 256}), 8);
}

std::unique_ptr<Step> ResNet50() {
  return std::make_unique<Step>(*models::BuildResNet({.depth = 50, .stem = "cifar", .num_classes = 10, .image_size = 32}), 32);
}

std::unique_ptr<Step> ImageNetResNet50() {
  return std::make_unique<Step>(*models::BuildResNet({.depth = 50, .stem = "imagenet", .num_classes = 1000, .image_size = 64}), 16);
}

using Builder = std::unique_ptr<Step> (*)();

// Reports the fastest step: the machine may be shared.
void BenchmarkStep(benchmark::State& state, Builder build) {
  const auto step = build();
  std::map<std::string, double> best;
  double fastest = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    std::map<std::string, double> seconds;
    step->RunAll(seconds);
    double total = 0;
    for (const auto& [type, value] : seconds) total += value;
    fastest = std::min(fastest, total);
    state.SetIterationTime(total);
    for (const auto& [type, value] : seconds) {
      best.emplace(type, value);
      best[type] = std::min(best[type], value);
    }
  }
  double flops = 0;
  for (const opdag::Op& op : step->graph().ops()) flops += opdag::CostOf(step->graph(), op).flops;
  state.counters["fastest_ms"] = fastest * 1e3;
  state.counters["GFLOP/s"] = flops / fastest * 1e-9;
  for (const auto& [type, value] : best) {
    if (value > 1e-3) state.counters[absl::StrCat(type, "_ms")] = value * 1e3;
  }
}

void BenchmarkOp(benchmark::State& state, Step* step, opdag::OpId id) {
  step->Allocate(id);
  const opdag::OpCost cost = opdag::CostOf(step->graph(), step->graph().op(id));
  double fastest = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const double start = Now();
    step->RunOp(id);
    fastest = std::min(fastest, Now() - start);
  }
  state.counters["fastest_us"] = fastest * 1e6;
  state.counters["GFLOP/s"] = cost.flops / fastest * 1e-9;
  state.counters["GB/s"] = static_cast<double>(cost.bytes_read + cost.bytes_written) / fastest * 1e-9;
}

void RegisterOps(const char* model, Builder build) {
  Step* step = build().release();  // lives as long as the process: the registered benchmarks use it
  std::map<std::string, int> seen;
  const opdag::Graph& graph = step->graph();
  for (opdag::OpId id = 0; id < static_cast<opdag::OpId>(graph.ops().size()); ++id) {
    const opdag::Op& op = graph.op(id);
    if (op.kind == opdag::OpKind::kPlaceholder || op.kind == opdag::OpKind::kReshape || op.kind == opdag::OpKind::kFlatten) continue;
    std::string name = absl::StrCat(model, "/", opdag::Name(op.kind));
    for (const opdag::ValueId v : op.inputs) absl::StrAppend(&name, " ", graph.value(v).type.ToString());
    absl::StrAppend(&name, " -> ", graph.value(op.outputs[0]).type.ToString());
    if (op.attributes.Has("kernel")) absl::StrAppend(&name, " kernel ", op.attributes.Ints("kernel")[0]);
    if (seen[name]++ > 0) continue;
    benchmark::RegisterBenchmark(name.c_str(), BenchmarkOp, step, id)->Unit(benchmark::kMicrosecond)->MinTime(0.05);
  }
}

}  // namespace
}  // namespace fusionllm::kernels

int main(int argc, char** argv) {
  using fusionllm::kernels::BenchmarkStep;
  benchmark::Initialize(&argc, argv);
  benchmark::RegisterBenchmark("step/gpt2", BenchmarkStep, fusionllm::kernels::Gpt2<256>)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(8);
  benchmark::RegisterBenchmark("step/gpt2-vocabulary-50257", BenchmarkStep, fusionllm::kernels::Gpt2<50257>)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(3);
  benchmark::RegisterBenchmark("step/resnet50", BenchmarkStep, fusionllm::kernels::ResNet50)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(4);
  benchmark::RegisterBenchmark("step/resnet50-imagenet-stem-64x64", BenchmarkStep, fusionllm::kernels::ImageNetResNet50)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(4);
  fusionllm::kernels::RegisterOps("gpt2", fusionllm::kernels::Gpt2<256>);
  fusionllm::kernels::RegisterOps("resnet50", fusionllm::kernels::ResNet50);
  benchmark::RunSpecifiedBenchmarks();
}

// Times whole training steps of one stage on one device, on data made up beforehand: prints one line of JSON, for tools/perf/gpu.
//
//   training_bench --model gpt2 --micro-batch 16 --device cuda:0
//
// A step is all of a user's: the batch copied from the host, forward, backward, AdamW, and the loss read back. Steps are counted from one
// loss to the next, after --warm of them; the rate is that of the median step.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "lib/base/exit_code.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/devices.h"
#include "lib/nvml/nvml.h"
#include "lib/workload/workload.h"

namespace fusionllm::workload {
namespace {

struct Flags {
  std::string model = "gpt2", device = "auto", precision = "bf16";
  int64_t micro_batch = 8, micro_batches = 1, steps = 20, warm = 5, seed = 1;
  int64_t layers = 12, heads = 12, width = 768, vocabulary = 50304, sequence = 1024;  // gpt2
  int64_t depth = 101, image_size = 224, classes = 1000;                              // resnet
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool fastest = false;
};

job::FusionJob JobOf(const Flags& flags) {
  job::FusionJob job;
  job.metadata.name = "training-bench";
  job.spec.model.init.seed = flags.seed;
  models::ModelSettings& config = job.spec.model.config;
  if (flags.model == "gpt2") {
    job.spec.model.family = models::FamilyName::kGpt2;
    config.n_layer = flags.layers;
    config.n_head = flags.heads;
    config.n_embd = flags.width;
    config.vocab_size = flags.vocabulary;
    config.block_size = flags.sequence;
    job.spec.data.kind = job::DataKind::kTokens;
  } else {
    job.spec.model.family = models::FamilyName::kResnet;
    job.spec.model.preset = absl::StrCat(flags.depth);
    config.stem = models::Stem::kImagenet;
    config.num_classes = flags.classes;
    config.image_size = flags.image_size;
    job.spec.data.kind = job::DataKind::kShapes;
    // Nothing is read of them, but a job's model and data must fit each other.
    job.spec.data.shapes.image_size = flags.image_size;
    job.spec.data.shapes.num_classes = std::min(flags.classes, job.spec.data.shapes.num_classes);
  }
  job::Training& training = job.spec.training;
  training.steps = flags.warm + flags.steps + 1;
  training.micro_batch_size = flags.micro_batch;
  training.global_batch_size = flags.micro_batch * flags.micro_batches;
  training.sequence_length = flags.sequence;
  training.optimizer.learning_rate = 3e-4;
  training.optimizer.weight_decay = 0.1;
  training.precision = flags.precision == "bf16" ? job::Precision::kBf16 : job::Precision::kFp32;
  return job;
}

// The same batch in every step, so that a step's time holds the copy of a batch and not its making.
class SameBatch : public runtime::BatchSource {
 public:
  SameBatch(uint64_t seed, int64_t classes) : seed_(seed), classes_(classes) {}

  absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
    const auto [batch, is_new] = batches_.try_emplace({placeholder.name, micro_batch}, out.type);
    if (is_new) Make(absl::StrCat(placeholder.name, "/", micro_batch), batch->second.view());
    std::memcpy(out.data, batch->second.view().data, out.bytes().size());
    return absl::OkStatus();
  }

 private:
  void Make(const std::string& name, tensor::TensorView out) const {
    const base::CounterRng rng(seed_, name);
    for (int64_t i = 0; i < out.type.elements(); ++i) {
      if (out.type.dtype == tensor::DType::kI32) {
        out.as<int32_t>()[i] = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(i), static_cast<uint64_t>(classes_)));
      } else {
        out.f32()[i] = 2 * rng.Uniform(static_cast<uint64_t>(i)) - 1;
      }
    }
  }

  const uint64_t seed_;
  const int64_t classes_;
  std::map<std::pair<std::string, int>, tensor::Tensor> batches_;
};

// One stage has no peer.
class OwnInbox : public runtime::MessagePort {
 public:
  explicit OwnInbox(runtime::Inbox& inbox) : inbox_(inbox) {}
  absl::Status Send(int to_stage, const runtime::MessageKey& key, runtime::Payload payload) override {
    inbox_.Deliver(key, std::move(payload));
    return absl::OkStatus();
  }

 private:
  runtime::Inbox& inbox_;
};

// What the driver says is taken of the card, beyond what was before; the peak of all looks. Nothing on the CPU.
class CardMemory {
 public:
  explicit CardMemory(const std::string& pci_bus_id) {
    if (pci_bus_id.empty()) return;
    auto gpu = nvml::Gpu::Open(pci_bus_id);
    if (!gpu.ok()) return;
    gpu_ = *std::move(gpu);
    before_ = Used();
  }
  void Look() { peak_ = std::max(peak_, Used().value_or(0) - before_.value_or(0)); }
  std::optional<int64_t> peak_bytes() const { return before_.has_value() ? std::optional(peak_) : std::nullopt; }

 private:
  std::optional<int64_t> Used() const {
    if (gpu_ == nullptr) return std::nullopt;
    const absl::StatusOr<nvml::Reading> reading = gpu_->Read();
    return reading.ok() ? reading->memory_used_bytes : std::nullopt;
  }

  std::unique_ptr<nvml::Gpu> gpu_;
  std::optional<int64_t> before_;
  int64_t peak_ = 0;
};

absl::StatusOr<nlohmann::ordered_json> Report(const Flags& flags) {
  FUSIONLLM_ASSIGN_OR_RETURN(const kernels::DeviceChoice device, kernels::ChooseDevice(flags.device));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::unique_ptr<Workload> workload, Resolve(JobOf(flags), "."));
  CardMemory memory(device.pci_bus_id);
  FUSIONLLM_ASSIGN_OR_RETURN(const auto backend,
                             kernels::CreateBackend(device.backend, {.threads = flags.threads, .deterministic = !flags.fastest}));
  const bool images = flags.model == "resnet";
  SameBatch source(static_cast<uint64_t>(flags.seed), images ? flags.classes : flags.vocabulary);
  runtime::Inbox inbox;
  OwnInbox port(inbox);
  runtime::DeviceThrottle throttle;
  std::vector<int64_t> ends_ns;
  std::vector<float> losses;
  runtime::StageCallbacks callbacks;
  callbacks.on_step = [&](const runtime::StepResult& step) {
    ends_ns.push_back(runtime::MonotonicNanoseconds());
    losses.push_back(step.loss);
    if (step.step == flags.warm) memory.Look();  // all that a stage takes is taken in its first step
    return runtime::StageCallbacks::Decision{};
  };
  const std::vector<int> placement = autodiff::AssignStages(workload->training, std::vector<int>(workload->training.forward_ops, 0));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto executor,
                             runtime::StageExecutor::Create(workload->training, placement, 0, 1, StageConfigOf(*workload),
                                                            runtime::ExactEdgeCodec(), *backend, port, inbox, source, throttle, callbacks));
  FUSIONLLM_RETURN_IF_ERROR(executor->store().InitializeAll(static_cast<uint64_t>(flags.seed)));
  FUSIONLLM_RETURN_IF_ERROR(executor->Run(1, workload->job.spec.training.steps).status());
  memory.Look();

  std::vector<double> seconds;
  for (size_t i = static_cast<size_t>(flags.warm); i + 1 < ends_ns.size(); ++i) {
    seconds.push_back(1e-9 * static_cast<double>(ends_ns[i + 1] - ends_ns[i]));
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = (seconds[(seconds.size() - 1) / 2] + seconds[seconds.size() / 2]) / 2;
  const int64_t samples = flags.micro_batch * flags.micro_batches;
  nlohmann::ordered_json report = {{"program", "fusionllm"},
                                   {"model", flags.model},
                                   {"device", device.description},
                                   {"versions", backend->Describe()},
                                   {"precision", flags.precision},
                                   {"micro_batch", flags.micro_batch},
                                   {"micro_batches", flags.micro_batches},
                                   {"unit", images ? "images" : "tokens"},
                                   {"per_second", static_cast<double>(samples * (images ? 1 : flags.sequence)) / median},
                                   {"step_seconds", median},
                                   {"step_seconds_least", seconds.front()},
                                   {"step_seconds_most", seconds.back()},
                                   {"steps", flags.steps},
                                   {"peak_bytes", nullptr},
                                   {"planned_bytes", executor->memory().total()},
                                   {"first_loss", losses.front()},
                                   {"last_loss", losses.back()}};
  if (memory.peak_bytes().has_value()) report["peak_bytes"] = *memory.peak_bytes();
  return report;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Times training steps of one stage on one device; prints a line of JSON");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", flags.model, "gpt2 or resnet")->check(CLI::IsMember({"gpt2", "resnet"}));
  app.add_option("--device", flags.device, "What computes: cpu, cuda:N, or auto, the first CUDA device if there is one");
  app.add_option("--precision", flags.precision, "bf16 or fp32")->check(CLI::IsMember({"bf16", "fp32"}));
  app.add_option("--micro-batch", flags.micro_batch, "Samples of a micro-batch")->check(CLI::Range(1, 1 << 20));
  app.add_option("--micro-batches", flags.micro_batches, "Micro-batches of a step")->check(CLI::Range(1, 1 << 20));
  app.add_flag("--allow-nondeterminism", flags.fastest, "On a GPU: algorithms by measurement, as fusion-executor takes them");
  app.add_option("--steps", flags.steps, "Steps that count")->check(CLI::Range(1, 1 << 20));
  app.add_option("--warm", flags.warm, "Steps before those, at least one")->check(CLI::Range(1, 1 << 20));
  app.add_option("--seed", flags.seed, "Of parameters and data");
  app.add_option("--threads", flags.threads, "Of the CPU's kernels")->check(CLI::Range(1, 1024));
  app.add_option("--layers", flags.layers, "gpt2: blocks")->check(CLI::Range(1, 10'000));
  app.add_option("--heads", flags.heads, "gpt2: heads of a block; divides --width")->check(CLI::Range(1, 10'000));
  app.add_option("--width", flags.width, "gpt2: values of an embedding")->check(CLI::Range(1, 1 << 20));
  app.add_option("--vocabulary", flags.vocabulary, "gpt2: tokens there are")->check(CLI::Range(2, 1 << 24));
  app.add_option("--sequence", flags.sequence, "gpt2: tokens of a sample")->check(CLI::Range(1, 1 << 20));
  app.add_option("--depth", flags.depth, "resnet: blocks and their kind, by their usual name")
      ->check(CLI::IsMember({18, 34, 50, 101, 152}));
  app.add_option("--image-size", flags.image_size, "resnet: pixels of a side")->check(CLI::Range(8, 4096));
  app.add_option("--classes", flags.classes, "resnet: classes of labels")->check(CLI::Range(1, 1'000'000));
  try {
    app.parse(argc, argv);
    if (flags.width % flags.heads != 0) {
      throw CLI::ValidationError("--heads", absl::StrCat("must divide --width, and ", flags.width, " is no multiple of ", flags.heads));
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? base::kExitDone : base::kExitBadInput;
  }
  const absl::StatusOr<nlohmann::ordered_json> report = Report(flags);
  if (!report.ok()) {
    std::fprintf(stderr, "training_bench: %s\n", std::string(report.status().message()).c_str());
    return base::ExitCodeFor(report.status());
  }
  std::printf("%s\n", report->dump().c_str());
  return base::kExitDone;
}

}  // namespace
}  // namespace fusionllm::workload

int main(int argc, char** argv) { return fusionllm::workload::Main(argc, argv); }

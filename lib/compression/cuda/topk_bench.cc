// Times the exact top-k selection of select.h on a card, by CUDA events: prints one line of JSON for each share of values kept.
//
//   topk_bench --values 100000000 --share 0.001 --share 0.01
//
// The values are normal, as gradients nearly are. Calls go round several buffers, so that none finds its values in the L2 cache (50 MB of
// an H100). Before it is timed, a selection is compared with one made by the host.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/exit_code.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/compression/cuda/select.h"
#include "lib/kernels/cuda/device.h"
#include "lib/kernels/devices.h"

namespace fusionllm::compression::cuda {
namespace {

using kernels::cuda::Device;
using kernels::cuda::ToStatus;

struct Flags {
  std::string device = "cuda:0";
  int buffers = 4, calls = 50;
  int64_t values = 10'000'000;
  std::vector<double> shares = {0.001, 0.01};
};

// Memory of the card for as long as it lives.
template <typename T>
class OnCard {
 public:
  absl::Status Allocate(int64_t count) { return ToStatus(cudaMalloc(&data_, static_cast<size_t>(count) * sizeof(T)), "allocating"); }
  OnCard() = default;
  OnCard(OnCard&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  ~OnCard() {
    if (data_ != nullptr) cudaFree(data_);
  }
  T* get() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
};

class Selection {
 public:
  Selection(Device& device, int64_t n, int64_t k) : device_(device), n_(n), k_(k) {}

  absl::Status Allocate() {
    FUSIONLLM_RETURN_IF_ERROR(workspace_.Allocate(static_cast<int64_t>(SelectionWorkspaceBytes(n_, k_))));
    FUSIONLLM_RETURN_IF_ERROR(greatest_.Allocate(1));
    FUSIONLLM_RETURN_IF_ERROR(indices_.Allocate(k_));
    FUSIONLLM_RETURN_IF_ERROR(kept_.Allocate(k_));
    return ToStatus(cudaMemsetAsync(greatest_.get(), 0, sizeof(uint32_t), device_.stream()), "clearing");
  }
  absl::Status Run(const float* values) {
    return ToStatus(SelectTopK(device_.stream(), values, n_, k_, {}, workspace_.get(), greatest_.get(),
                               {.indices = indices_.get(), .kept = kept_.get()}),
                    "selecting");
  }
  absl::StatusOr<std::vector<uint32_t>> Indices() {
    std::vector<uint32_t> indices(static_cast<size_t>(k_));
    FUSIONLLM_RETURN_IF_ERROR(device_.Synchronize());
    FUSIONLLM_RETURN_IF_ERROR(
        ToStatus(cudaMemcpy(indices.data(), indices_.get(), indices.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost), "reading"));
    return indices;
  }

 private:
  Device& device_;
  const int64_t n_, k_;
  OnCard<std::byte> workspace_;
  OnCard<uint32_t> greatest_, indices_;
  OnCard<float> kept_;
};

// Ascending, ties to the lower index.
std::vector<uint32_t> SelectedByHost(const std::vector<float>& values, int64_t k) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), [&](uint32_t a, uint32_t b) {
    const float x = std::abs(values[a]), y = std::abs(values[b]);
    return x != y ? x > y : a < b;
  });
  order.resize(static_cast<size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

absl::StatusOr<std::vector<double>> TimedSeconds(Device& device, Selection& selection, const std::vector<OnCard<float>>& buffers,
                                                 int calls) {
  cudaEvent_t begin = nullptr, end = nullptr;
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaEventCreate(&begin), "making an event"));
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaEventCreate(&end), "making an event"));
  std::vector<double> seconds;
  for (int call = 0; call < calls; ++call) {
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaEventRecord(begin, device.stream()), "timing"));
    FUSIONLLM_RETURN_IF_ERROR(selection.Run(buffers[static_cast<size_t>(call) % buffers.size()].get()));
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaEventRecord(end, device.stream()), "timing"));
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(end), "timing"));
    float milliseconds = 0;
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaEventElapsedTime(&milliseconds, begin, end), "timing"));
    seconds.push_back(1e-3 * milliseconds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  seconds.erase(seconds.begin(), seconds.begin() + calls / 5);  // while the clocks rise
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

absl::Status Report(const Flags& flags) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, Device::Open(kernels::CudaIndex(flags.device)));
  std::vector<float> values(static_cast<size_t>(flags.values));
  const base::CounterRng rng(1, "gradient");
  for (size_t i = 0; i < values.size(); ++i) values[i] = rng.Normal(i);
  std::vector<OnCard<float>> buffers;
  for (int b = 0; b < flags.buffers; ++b) {
    FUSIONLLM_RETURN_IF_ERROR(buffers.emplace_back().Allocate(flags.values));
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(
        cudaMemcpy(buffers.back().get(), values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice), "copying to the card"));
  }
  for (const double share : flags.shares) {
    const int64_t k = std::max<int64_t>(1, std::llround(share * static_cast<double>(flags.values)));
    Selection selection(*device, flags.values, k);
    FUSIONLLM_RETURN_IF_ERROR(selection.Allocate());
    FUSIONLLM_RETURN_IF_ERROR(selection.Run(buffers[0].get()));
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<uint32_t> got, selection.Indices());
    if (got != SelectedByHost(values, k)) return absl::InternalError(absl::StrCat("of ", flags.values, " values not the greatest ", k));
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<double> seconds, TimedSeconds(*device, selection, buffers, flags.calls));
    const double median = seconds[seconds.size() / 2];
    const nlohmann::ordered_json report = {{"program", "fusionllm"},
                                           {"device", device->info().ToString()},
                                           {"values", flags.values},
                                           {"kept", k},
                                           {"seconds", median},
                                           {"seconds_least", seconds.front()},
                                           {"seconds_most", seconds.back()},
                                           {"values_per_second", static_cast<double>(flags.values) / median}};
    std::printf("%s\n", report.dump().c_str());
  }
  return absl::OkStatus();
}

std::string CheckCard(const std::string& text) {
  return kernels::CudaIndex(text) >= 0 ? "" : absl::StrCat("'", text, "' is no card: use cuda:N (cuda:0 is the first)");
}

// CLI11's own checks let NaN pass.
std::string CheckShare(const std::string& text) {
  double share = 0;
  const bool in_range = absl::SimpleAtod(text, &share) && share >= 1e-9 && share <= 1;
  return in_range ? "" : absl::StrCat("'", text, "' is no share: from 1e-9 to 1");
}

// What is said of a card that cannot be had tells where else to compute; here that is nowhere.
std::string WithoutTheCpu(absl::string_view message) {
  return absl::StrReplaceAll(message, {{", or run on the CPU (--device cpu)", ""}, {"run on the CPU (--device cpu), or, in", "in"}});
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Times the exact top-k selection on a card; prints a line of JSON for each share");
  app.option_defaults()->always_capture_default();
  app.add_option("--device", flags.device, "The card that computes: cuda:N")->check(CheckCard);
  app.add_option("--values", flags.values, "Values to select from")->check(CLI::Range(int64_t{1}, int64_t{2'000'000'000}));
  app.add_option("--share", flags.shares, "Share of the values to keep; may be repeated")->check(CheckShare);
  app.add_option("--buffers", flags.buffers, "Buffers that calls go round")->check(CLI::Range(1, 64));
  app.add_option("--calls", flags.calls, "Calls to time")->check(CLI::Range(5, 1 << 20));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? base::kExitDone : base::kExitBadInput;
  }
  const absl::Status status = Report(flags);
  if (status.ok()) return base::kExitDone;
  std::fprintf(stderr, "topk_bench: %s\n", WithoutTheCpu(status.message()).c_str());
  return base::ExitCodeFor(status);
}

}  // namespace
}  // namespace fusionllm::compression::cuda

int main(int argc, char** argv) { return fusionllm::compression::cuda::Main(argc, argv); }

#include "lib/estimator/gpu_specs.h"

#include <algorithm>
#include <utility>

namespace fusionllm::estimator {
namespace {

using opdag::OpClass;

constexpr int64_t kGB = 1'000'000'000;
constexpr double kGBps = 1e9;
constexpr double kTera = 1e12;
constexpr double kNotSpecified = 0;

// One row a GPU: name, memory, bandwidth, fp32, tf32, bf16. Where a data sheet states a peak with sparsity, half of it stands here.
// AMD's MI250X is left out: it shows as two devices, and its figures are those of both.
constexpr GpuSpec kSpecs[] = {
    {"amd-mi300x", 192 * kGB, 5300 * kGBps, 163.4 * kTera, 653.7 * kTera, 1307.4 * kTera, "AMD Instinct MI300X data sheet, 2023"},
    {"nvidia-a10", 24 * kGB, 600 * kGBps, 31.2 * kTera, 62.5 * kTera, 125 * kTera, "NVIDIA A10 data sheet, 2021"},
    {"nvidia-a100-40gb", 40 * kGB, 1555 * kGBps, 19.5 * kTera, 156 * kTera, 312 * kTera, "NVIDIA A100 data sheet, 2021"},
    {"nvidia-a100-80gb", 80 * kGB, 1935 * kGBps, 19.5 * kTera, 156 * kTera, 312 * kTera, "NVIDIA A100 data sheet, 2021 (PCIe)"},
    {"nvidia-a100-80gb-sxm", 80 * kGB, 2039 * kGBps, 19.5 * kTera, 156 * kTera, 312 * kTera, "NVIDIA A100 data sheet, 2021 (SXM4)"},
    {"nvidia-h100-pcie", 80 * kGB, 2000 * kGBps, 51 * kTera, 378 * kTera, 756.5 * kTera, "NVIDIA H100 data sheet, 2023 (PCIe)"},
    {"nvidia-h100-sxm", 80 * kGB, 3350 * kGBps, 67 * kTera, 494.5 * kTera, 989.5 * kTera, "NVIDIA H100 data sheet, 2023 (SXM5)"},
    {"nvidia-h200-sxm", 141 * kGB, 4800 * kGBps, 67 * kTera, 494.5 * kTera, 989.5 * kTera, "NVIDIA H200 data sheet, 2024 (SXM)"},
    {"nvidia-l4", 24 * kGB, 300 * kGBps, 30.3 * kTera, 60 * kTera, 121 * kTera, "NVIDIA L4 data sheet, 2023"},
    {"nvidia-l40s", 48 * kGB, 864 * kGBps, 91.6 * kTera, 183 * kTera, 362.05 * kTera, "NVIDIA L40S data sheet, 2023"},
    {"nvidia-rtx-3090", 24 * kGB, 936 * kGBps, 35.6 * kTera, 35.6 * kTera, 71 * kTera,
     "NVIDIA Ampere GA102 GPU architecture white paper, 2020"},
    {"nvidia-rtx-4090", 24 * kGB, 1008 * kGBps, 82.6 * kTera, 82.6 * kTera, 165.2 * kTera, "NVIDIA Ada GPU architecture white paper, 2022"},
    {"nvidia-t4", 16 * kGB, 300 * kGBps, 8.1 * kTera, kNotSpecified, kNotSpecified, "NVIDIA T4 data sheet, 2019"},
    {"nvidia-v100-16gb", 16 * kGB, 900 * kGBps, 14 * kTera, kNotSpecified, kNotSpecified, "NVIDIA V100 data sheet, 2020 (PCIe)"},
    {"nvidia-v100-32gb", 32 * kGB, 900 * kGBps, 14 * kTera, kNotSpecified, kNotSpecified, "NVIDIA V100 data sheet, 2020 (PCIe)"},
    {"nvidia-v100-32gb-sxm", 32 * kGB, 900 * kGBps, 15.7 * kTera, kNotSpecified, kNotSpecified, "NVIDIA V100 data sheet, 2020 (SXM2)"},
};

constexpr std::pair<absl::string_view, Arithmetic> kArithmetics[] = {
    {"fp32", Arithmetic::kFp32}, {"tf32", Arithmetic::kTf32}, {"bf16", Arithmetic::kBf16}};

}  // namespace

absl::string_view Name(Arithmetic arithmetic) {
  for (const auto& [name, candidate] : kArithmetics) {
    if (candidate == arithmetic) return name;
  }
  return "?";
}

std::optional<Arithmetic> ArithmeticNamed(absl::string_view name) {
  for (const auto& [candidate, arithmetic] : kArithmetics) {
    if (candidate == name) return arithmetic;
  }
  return std::nullopt;
}

std::span<const GpuSpec> GpuSpecs() { return kSpecs; }

const GpuSpec* FindGpu(absl::string_view name) {
  const auto* found = std::find_if(std::begin(kSpecs), std::end(kSpecs), [&](const GpuSpec& gpu) { return gpu.name == name; });
  return found == std::end(kSpecs) ? nullptr : found;
}

std::vector<std::string> GpuNames() {
  std::vector<std::string> names;
  for (const GpuSpec& gpu : kSpecs) names.emplace_back(gpu.name);
  return names;
}

Arithmetic ArithmeticOn(const GpuSpec& gpu, Arithmetic wanted) {
  const double peak = wanted == Arithmetic::kTf32 ? gpu.tf32_flops : wanted == Arithmetic::kBf16 ? gpu.bf16_flops : gpu.fp32_flops;
  return peak > 0 ? wanted : Arithmetic::kFp32;
}

double PeakFlops(const GpuSpec& gpu, Arithmetic arithmetic) {
  switch (ArithmeticOn(gpu, arithmetic)) {
    case Arithmetic::kTf32:
      return gpu.tf32_flops;
    case Arithmetic::kBf16:
      return gpu.bf16_flops;
    case Arithmetic::kFp32:
      break;
  }
  return gpu.fp32_flops;
}

std::array<OpRate, opdag::kOpClassCount> SpecifiedRates(const GpuSpec& gpu, Arithmetic arithmetic) {
  std::array<OpRate, opdag::kOpClassCount> rates;
  for (int c = 0; c < opdag::kOpClassCount; ++c) {
    double flops = kOtherArithmeticShare * gpu.fp32_flops;
    switch (static_cast<OpClass>(c)) {
      case OpClass::kFree:
        continue;
      case OpClass::kMatmul:
        flops = kMatmulShare * PeakFlops(gpu, arithmetic);
        break;
      case OpClass::kAttention:
        flops = kAttentionShare * PeakFlops(gpu, arithmetic);
        break;
      case OpClass::kConvolution:
        flops = kOtherArithmeticShare * PeakFlops(gpu, arithmetic);
        break;
      default:
        break;
    }
    rates[c] = {.overhead_s = kLaunchSeconds,
                .seconds_per_flop = 1 / flops,
                .seconds_per_byte = StreamSeconds(gpu, 1),
                .relative_error = kSpecifiedError,
                .specified = true};
  }
  return rates;
}

double StreamSeconds(const GpuSpec& gpu, double bytes) { return bytes / (kBandwidthShare * gpu.memory_bytes_per_s); }

}  // namespace fusionllm::estimator

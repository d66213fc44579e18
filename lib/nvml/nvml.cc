#include "lib/nvml/nvml.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/shared_library.h"
#include "lib/base/status_macros.h"

namespace fusionllm::nvml {
namespace {

// Of nvml.h, whose functions keep their meaning under their names: https://docs.nvidia.com/deploy/nvml-api.
constexpr int kSuccess = 0, kNotFound = 6, kGpuIsLost = 15;
constexpr int kTemperatureGpu = 0;
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;  // bytes
};

}  // namespace

struct Gpu::Library {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*handle_by_pci_bus_id)(const char*, void**) = nullptr;
  int (*utilization_rates)(void*, Utilization*) = nullptr;
  int (*memory_info)(void*, Memory*) = nullptr;
  int (*temperature)(void*, int, unsigned*) = nullptr;
  int (*power_usage)(void*, unsigned*) = nullptr;
  bool begun = false;

  ~Library() {
    if (begun) shutdown();
  }

  absl::Status Find(const base::SharedLibrary& library) {
    FUSIONLLM_RETURN_IF_ERROR(library.Find("nvmlInit_v2", init));
    FUSIONLLM_RETURN_IF_ERROR(library.Find("nvmlShutdown", shutdown));
    FUSIONLLM_RETURN_IF_ERROR(library.Find("nvmlErrorString", error_string));
    FUSIONLLM_RETURN_IF_ERROR(library.Find("nvmlDeviceGetHandleByPciBusId_v2", handle_by_pci_bus_id));
    FUSIONLLM_RETURN_IF_ERROR(library.Find("nvmlDeviceGetUtilizationRates", utilization_rates));
    FUSIONLLM_RETURN_IF_ERROR(library.Find("nvmlDeviceGetMemoryInfo", memory_info));
    FUSIONLLM_RETURN_IF_ERROR(library.Find("nvmlDeviceGetTemperature", temperature));
    return library.Find("nvmlDeviceGetPowerUsage", power_usage);
  }

  // False: the card does not tell this.
  absl::StatusOr<bool> Told(int answer, absl::string_view what) const {
    if (answer == kSuccess) return true;
    if (answer == kGpuIsLost) return absl::UnavailableError(absl::StrCat("asking the driver for ", what, ": ", error_string(answer)));
    return false;
  }
};

Gpu::Gpu(std::unique_ptr<Library> library, void* device) : library_(std::move(library)), device_(device) {}
Gpu::~Gpu() = default;

absl::StatusOr<std::unique_ptr<Gpu>> Gpu::Open(const std::string& pci_bus_id, const std::vector<std::string>& names) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::SharedLibrary shared, base::SharedLibrary::Open(names));
  auto library = std::make_unique<Library>();
  FUSIONLLM_RETURN_IF_ERROR(library->Find(shared));
  if (const int begun = library->init(); begun != kSuccess) {
    return absl::FailedPreconditionError(absl::StrCat(shared.name(), " does not begin: ", library->error_string(begun)));
  }
  library->begun = true;
  void* device = nullptr;
  if (const int found = library->handle_by_pci_bus_id(pci_bus_id.c_str(), &device); found != kSuccess) {
    const std::string text = absl::StrCat("NVML and the card at ", pci_bus_id, ": ", library->error_string(found));
    return found == kNotFound ? absl::NotFoundError(text) : absl::FailedPreconditionError(text);
  }
  return std::unique_ptr<Gpu>(new Gpu(std::move(library), device));
}

absl::StatusOr<Reading> Gpu::Read() const {
  Reading reading;
  Utilization utilization = {};
  FUSIONLLM_ASSIGN_OR_RETURN(bool told, library_->Told(library_->utilization_rates(device_, &utilization), "its utilization"));
  if (told) reading.utilization_ratio = utilization.gpu / 100.0;
  Memory memory = {};
  FUSIONLLM_ASSIGN_OR_RETURN(told, library_->Told(library_->memory_info(device_, &memory), "its memory"));
  if (told) {
    reading.memory_used_bytes = static_cast<int64_t>(memory.used);
    reading.memory_total_bytes = static_cast<int64_t>(memory.total);
  }
  unsigned degrees = 0, milliwatts = 0;
  FUSIONLLM_ASSIGN_OR_RETURN(told, library_->Told(library_->temperature(device_, kTemperatureGpu, &degrees), "its temperature"));
  if (told) reading.temperature_celsius = degrees;
  FUSIONLLM_ASSIGN_OR_RETURN(told, library_->Told(library_->power_usage(device_, &milliwatts), "its power"));
  if (told) reading.power_watts = milliwatts / 1000.0;
  return reading;
}

}  // namespace fusionllm::nvml

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
constexpr int kUncorrectedErrors = 1, kSinceDriverLoad = 0;
constexpr unsigned long long kXidEvents = 0x8;
constexpr unsigned long long kSwPowerCap = 0x4, kHwSlowdown = 0x8, kSwThermal = 0x20, kHwThermal = 0x40, kHwPowerBrake = 0x80;
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;  // bytes
};
struct Event {
  void* device;
  unsigned long long type, data;  // data: the Xid
  unsigned gpu_instance, compute_instance;
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
  // Null: not in this driver's.
  int (*throttle_reasons)(void*, unsigned long long*) = nullptr;
  int (*ecc_errors)(void*, int, int, unsigned long long*) = nullptr;
  int (*event_set_create)(void**) = nullptr;
  int (*event_set_free)(void*) = nullptr;
  int (*event_set_wait)(void*, Event*, unsigned) = nullptr;
  int (*register_events)(void*, unsigned long long, void*) = nullptr;
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
    FUSIONLLM_RETURN_IF_ERROR(library.Find("nvmlDeviceGetPowerUsage", power_usage));
    library.Find("nvmlDeviceGetCurrentClocksThrottleReasons", throttle_reasons).IgnoreError();
    library.Find("nvmlDeviceGetTotalEccErrors", ecc_errors).IgnoreError();
    library.Find("nvmlEventSetCreate", event_set_create).IgnoreError();
    library.Find("nvmlEventSetFree", event_set_free).IgnoreError();
    library.Find("nvmlEventSetWait_v2", event_set_wait).IgnoreError();
    library.Find("nvmlDeviceRegisterEvents", register_events).IgnoreError();
    return absl::OkStatus();
  }

  // Null: this driver or card does not tell of Xid errors.
  void* WatchXids(void* device) const {
    const bool can = event_set_create != nullptr && event_set_free != nullptr && event_set_wait != nullptr && register_events != nullptr;
    void* events = nullptr;
    if (!can || event_set_create(&events) != kSuccess) return nullptr;
    if (register_events(device, kXidEvents, events) == kSuccess) return events;
    event_set_free(events);
    return nullptr;
  }

  // False: the card does not tell this.
  absl::StatusOr<bool> IsReported(int answer, absl::string_view what) const {
    if (answer == kSuccess) return true;
    if (answer == kGpuIsLost) return absl::UnavailableError(absl::StrCat("asking the driver for ", what, ": ", error_string(answer)));
    return false;
  }
};

Gpu::Gpu(std::unique_ptr<Library> library, void* device, void* events) : library_(std::move(library)), device_(device), events_(events) {}

Gpu::~Gpu() {
  if (events_ != nullptr) library_->event_set_free(events_);
}

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
  void* const events = library->WatchXids(device);
  return std::unique_ptr<Gpu>(new Gpu(std::move(library), device, events));
}

absl::StatusOr<Reading> Gpu::Read() const {
  Reading reading;
  Utilization utilization = {};
  FUSIONLLM_ASSIGN_OR_RETURN(bool reported, library_->IsReported(library_->utilization_rates(device_, &utilization), "its utilization"));
  if (reported) reading.utilization_ratio = utilization.gpu / 100.0;
  Memory memory = {};
  FUSIONLLM_ASSIGN_OR_RETURN(reported, library_->IsReported(library_->memory_info(device_, &memory), "its memory"));
  if (reported) {
    reading.memory_used_bytes = static_cast<int64_t>(memory.used);
    reading.memory_total_bytes = static_cast<int64_t>(memory.total);
  }
  unsigned degrees = 0, milliwatts = 0;
  FUSIONLLM_ASSIGN_OR_RETURN(reported, library_->IsReported(library_->temperature(device_, kTemperatureGpu, &degrees), "its temperature"));
  if (reported) reading.temperature_celsius = degrees;
  FUSIONLLM_ASSIGN_OR_RETURN(reported, library_->IsReported(library_->power_usage(device_, &milliwatts), "its power"));
  if (reported) reading.power_watts = milliwatts / 1000.0;
  unsigned long long reasons = 0, errors = 0;
  if (library_->throttle_reasons != nullptr) {
    FUSIONLLM_ASSIGN_OR_RETURN(reported, library_->IsReported(library_->throttle_reasons(device_, &reasons), "what slows it down"));
    if (reported) {
      reading.throttling = Throttling{.power = (reasons & (kSwPowerCap | kHwPowerBrake)) != 0,
                                      .heat = (reasons & (kSwThermal | kHwThermal)) != 0,
                                      .hardware = (reasons & kHwSlowdown) != 0};
    }
  }
  if (library_->ecc_errors != nullptr) {
    const int answer = library_->ecc_errors(device_, kUncorrectedErrors, kSinceDriverLoad, &errors);
    FUSIONLLM_ASSIGN_OR_RETURN(reported, library_->IsReported(answer, "its ECC errors"));
    if (reported) reading.uncorrected_ecc_errors = static_cast<int64_t>(errors);
  }
  return reading;
}

std::vector<uint64_t> Gpu::TakeXids() const {
  std::vector<uint64_t> xids;
  if (events_ == nullptr) return xids;
  constexpr unsigned kNoWait = 0;
  Event event = {};
  // Anything else than an event, also that the card is lost, means that there are no more.
  while (xids.size() < kMaxXids && library_->event_set_wait(events_, &event, kNoWait) == kSuccess) {
    if (event.type == kXidEvents) xids.push_back(event.data);
  }
  return xids;
}

}  // namespace fusionllm::nvml

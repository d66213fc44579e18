// A library with NVML's functions and one card, for machines without a driver. What the card does is told by the environment variable
// FAKE_NVML: "" well; "driver" the library does not begin; "slice" it does not tell how busy it is; "lost" it has fallen off the bus.
#include <cstdlib>
#include <cstring>

namespace {

bool Says(const char* word) {
  const char* set = std::getenv("FAKE_NVML");
  return set != nullptr && std::strcmp(set, word) == 0;
}
int card = 0;
int begun = 0;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  if (Says("driver")) return 9;
  ++begun;
  return 0;
}
int nvmlShutdown() {
  --begun;
  return 0;
}
// Not NVML's: how often it was begun and not ended.
int fakeNvmlBegun() { return begun; }
const char* nvmlErrorString(int error) {
  switch (error) {
    case 3:
      return "Not Supported";
    case 6:
      return "Not Found";
    case 9:
      return "Driver Not Loaded";
    case 15:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  if (std::strcmp(bus, "0000:3b:00.0") != 0) return 6;
  *device = &card;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  if (Says("lost")) return 15;
  if (device != &card || Says("slice")) return 3;
  rates[0] = 87;
  rates[1] = 40;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* sizes) {
  if (device != &card) return 3;
  sizes[0] = 80ULL << 30;
  sizes[1] = 75ULL << 30;
  sizes[2] = 5ULL << 30;
  return 0;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* degrees) {
  if (device != &card || sensor != 0) return 3;
  *degrees = 61;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  if (device != &card) return 3;
  *milliwatts = 412'500;
  return 0;
}

}  // extern "C"
